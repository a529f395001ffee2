"""``spec.reproducible`` for algorithms that learn transitions from a replay, such as DQN and SAC.

The learner keeps the replay. It inserts the transitions of each block in the order of blocks, and then makes as many updates as
``samplesPerInsert`` permits, while samplers make the next rollouts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from rltraining_api.algorithms.replay import Replay
from torch import Tensor

from rltraining_trainer.algorithms.apex_learner import ApexLearner
from rltraining_trainer.algorithms.block_collector import BlockCollector, TransitionBlockCollector
from rltraining_trainer.algorithms.reproducible import sample_blocks
from rltraining_trainer.algorithms.transitions import Actor
from rltraining_trainer.dataflow.block_queue import BlockRollout
from rltraining_trainer.dataflow.fields import field
from rltraining_trainer.dataflow.reduce import Reduce
from rltraining_trainer.dataflow.replay import Column, ReplayBuffer, ReplayStats, SampleResult
from rltraining_trainer.dataflow.replay.batch import importance_weights
from rltraining_trainer.dataflow.replay.rate_limiter import RateLimiter
from rltraining_trainer.dataflow.replay.storage import check_items
from rltraining_trainer.environments.episode_seeds import MINIBATCHES, seed_of
from rltraining_trainer.errors import BadConfiguration
from rltraining_trainer.networks import PolicyNetwork
from rltraining_trainer.world import Payload, World

LAG = 1
"""Rounds of updates that the parameters of a rollout lack, so that samplers act while the learner updates."""


def learn_from_transitions(world: World, learner: ApexLearner[Any], columns: Mapping[str, Column]) -> None:
    """The learner's function: updates after one rollout of every block, as often as the replay permits."""
    torch.set_num_threads(1)
    settings, seed = world.settings, world.spec.seed
    replay = BlockReplay(settings.replay, settings.batch_size, columns, seed)
    blocks = world.blocks(partial(read_transitions, columns), LAG, replay)
    run = world.run(algorithm=learner)

    def update(rollouts: Sequence[BlockRollout], reduce: Reduce) -> Mapping[str, Tensor]:
        """Makes all updates after these rollouts, even if this process is asked to end meanwhile."""
        # Insert the transitions.
        number = blocks.update
        torch.manual_seed(seed_of(seed, MINIBATCHES, number))
        for rollout in rollouts:
            found = rollout.unroll
            replay.add(found["transitions"], found["priorities"], found["steps"])
            returns, episodes = found["episode_return"], found["episodes"]
            run.count(found["steps"], returns, episodes=episodes, lag=min(LAG, number))

        # Update.
        learner.merge_moments([rollout.unroll["moments"] for rollout in rollouts], reduce)
        terms: dict[str, Tensor] = {}
        while (sample := replay.sample()) is not None:
            batch: Any = sample.items
            priorities, terms = learner.step(batch, replay.weights(sample), reduce=reduce)
            replay.update(sample, priorities)
        # Without an update, publish the new statistics of observations here, because a restarted learner publishes them too.
        if not terms:
            run.publish(learner.parameters)
        blocks.end(learner.parameters, replay.environment_steps)
        return terms

    run.train(blocks.take, update)


def sample_transitions(world: World, actor: Actor, network: PolicyNetwork, length: int) -> None:
    """The sampler's function: makes the rollouts that the learner requests, of ``length`` steps."""
    settings, reproducible, size = world.settings, world.spec.reproducible, world.spec.environment.num_envs
    assert reproducible is not None

    def collector() -> BlockCollector:
        return TransitionBlockCollector(
            actor,
            world.seeded_environments(),
            length=length,
            n_step=settings.n_step,
            discount=settings.discount,
            reward_clip=settings.reward_clip,
            reward_scale=settings.reward_scale,
            seed=world.spec.seed,
            environments=range(size),
            total=reproducible.blocks * size,
            warmup_steps=settings.replay.minimum,
        )

    sample_blocks(world, network, collector)


class BlockReplay:
    """The replay of a reproducible run. It depends only on its seed and the order of calls.

    Raises BadConfiguration without ``samplesPerInsert``.
    """

    def __init__(self, settings: Replay, batch_size: int, columns: Mapping[str, Column], seed: int) -> None:
        if settings.samples_per_insert is None:
            raise BadConfiguration(
                "spec.reproducible needs a fixed number of updates: set replay.samplesPerInsert to the average number of times "
                "that each transition is sampled"
            )
        self.environment_steps = 0
        """Steps of all rollouts so far."""
        self._settings, self._batch_size = settings, batch_size
        self._buffer = ReplayBuffer(
            settings.capacity,
            columns,
            kind=settings.kind,
            priority_exponent=settings.priority_exponent,
            frame_stack=settings.frame_stack,
            seed=seed_of(seed, MINIBATCHES),
        )
        self._limiter = RateLimiter(
            settings.samples_per_insert, settings.samples_per_insert_tolerance, settings.minimum, batch_size
        )
        self._age = 0.0  # mean age of the items of the last sample

    def add(self, transitions: Mapping[str, Tensor], priorities: Tensor, steps: int) -> None:
        """Adds the transitions ``[K, ...]`` of a rollout of ``steps`` steps."""
        self._buffer.add(transitions, priorities)
        self.environment_steps += steps

    def sample(self) -> SampleResult | None:
        """Samples a batch. Returns None if more insertions are required before."""
        counts = self._buffer.counts
        if not self._limiter.may_sample(counts.inserted, counts.sampled, self._batch_size):
            return None
        sample = self._buffer.sample(self._batch_size)
        self._age = float(sample.ages.double().mean())
        return sample

    def weights(self, sample: SampleResult) -> Tensor:
        """Returns the importance weights ``[B]``, of which the largest is 1 (see ``importanceNormalizer``)."""
        buffer, exponent = self._buffer, self._settings.importance_exponent
        weights = importance_weights(sample.probabilities, buffer.size, exponent)
        if self._settings.importance_normalizer == "Batch":
            return weights / weights.max()
        least = torch.tensor([buffer.min_priority / buffer.priority_sum], dtype=torch.float64)
        return weights / importance_weights(least, buffer.size, exponent)

    def update(self, sample: SampleResult, priorities: Tensor) -> None:
        """Sets the priorities ``[B]`` of a sample."""
        self._buffer.update(sample.slots, sample.versions, priorities)

    def stats(self) -> ReplayStats:
        """Returns the current counters."""
        inserted, evicted, sampled, applied, stale = self._buffer.counts
        return ReplayStats(
            shards=1,
            size=inserted - evicted,
            inserted=inserted,
            evicted=evicted,
            lost=0,
            restarted=0,
            drawn=sampled,
            applied=applied,
            stale=stale,
            priorities_lost=0,
            outstanding=sampled - applied - stale,
            sample_age=self._age,
            sizes={"learner-0": inserted - evicted},
        )

    def get_state(self) -> dict[str, Any]:
        """Returns the state, with all transitions."""
        return {"buffer": self._buffer.get_state(), "environment_steps": self.environment_steps}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continues from a state. Raises ValueError if the state has another capacity or other columns."""
        self._buffer.set_state(state["buffer"])
        self.environment_steps = state["environment_steps"]


def read_transitions(columns: Mapping[str, Column], payload: Payload) -> dict[str, Any]:
    """Reads ``{"unroll": {...}}``, a rollout of ``TransitionBlockCollector``.

    Raises TypeError or ValueError, naming the field.
    """
    rollout: dict[str, Any] = field(payload, "unroll", dict)
    for name in ("steps", "episodes"):
        field(rollout, name, int)
    for name in ("action", "observation", "first", "episode_return", "moments"):
        field(rollout, name, Tensor)
    priorities = field(rollout, "priorities", Tensor)
    check_items(columns, field(rollout, "transitions", dict), len(priorities))
    return rollout
