"""What an Ape-X sampler does: it acts, and puts transitions with first priorities into the replay memory."""

from __future__ import annotations

import sys
import time
from typing import Any, Protocol

import torch
from gymnasium.vector import VectorEnv

from rltraining_trainer.algorithms.transitions import Block, TransitionCollector
from rltraining_trainer.dataflow import FIRST_VERSION, NO_MOMENTS
from rltraining_trainer.environments import Faults, Stepper
from rltraining_trainer.roles.context import Context
from rltraining_trainer.roles.link import REPORT_SECONDS, LearnerLink, Link, is_large
from rltraining_trainer.roles.replay_flow import Settings, make_actor
from rltraining_trainer.roles.scrape import serve_sampler
from rltraining_trainer.roles.seeds import sampler_seed
from rltraining_trainer.roles.shards import KeptShard
from rltraining_trainer.transport import Endpoint, Stopped

BLOCK_STEPS = 16
"""Steps of each environment after which transitions go into the memory, if parameters are not looked for more often."""


def sample_into_replay(context: Context, settings: Settings, environments: VectorEnv) -> None:
    """Act, remember and report, until the learner says that the run is done."""
    # The shard is served on RPC threads: they must not wait 5 ms for this thread to let go of the interpreter.
    sys.setswitchinterval(0.0005)
    spec = context.job.spec
    spaces = environments.single_observation_space, environments.single_action_space
    kept: KeptShard | None = None
    if settings.replay.placement == "Samplers":
        kept = KeptShard(context, settings.replay, spaces, spec.sampler.replicas)
    services = kept.shard.services if kept else {}
    endpoint = Endpoint(context.pod, context.token, services, direct=is_large(spaces[0]))
    actor, parameters = make_actor(settings, context, spaces)
    learner = LearnerLink(context, context.learners[0], endpoint, "report", parameters, alone=False)
    stepper, links = (
        Stepper(environments, spec.environment.id, Faults.of(spec.environment)),
        list[Link]([learner]),
    )
    serve_sampler(context, learner.attached.is_set, stepper, links, kept.shard if kept else None)
    endpoint.start()
    learner.attach()
    memory: Memory = OwnMemory(kept, endpoint) if kept else OtherMemory(context, settings, endpoint, links)

    seed = sampler_seed(spec.seed, context.index, learner.version)
    torch.manual_seed(seed)
    samplers = learner.answer["samplers"]
    collector = TransitionCollector(
        actor,
        stepper,
        length=min(BLOCK_STEPS, settings.parameter_refresh_steps),
        n_step=settings.n_step,
        discount=settings.discount,
        reward_clip=settings.reward_clip,
        reward_scale=settings.reward_scale,
        seed=seed,
        environments=_places(context, samplers)[0],
        total=_places(context, samplers)[1],
    )
    news = News(settings.parameter_refresh_steps, time.monotonic())
    while not learner.done:
        actor.warming_up = learner.version <= FIRST_VERSION
        block = collector.collect()
        memory.add(block)
        news.add(block, collector.length)
        now = time.monotonic()
        if learner.idle and news.due(now):
            learner.send(**news.take(now), shard=memory.describe())
        while not memory.take_limit(learner.answer["limit"]) and not learner.done:
            learner.settle()
            if not memory.take_limit(learner.answer["limit"]):
                learner.send(**news.take(time.monotonic()), shard=memory.describe())
        if learner.answer["samplers"] != samplers:
            samplers = learner.answer["samplers"]
            collector.place(*_places(context, samplers))
        if context.stopping.is_set():
            raise Stopped("asked to end")
    memory.close()


class Memory(Protocol):
    """Where transitions go."""

    def add(self, block: Block) -> None: ...
    def describe(self) -> dict[str, Any] | None:
        """The shard that this sampler keeps, for the learner."""

    def take_limit(self, limit: int | None) -> bool:
        """How many insertions there may have been; whether there may be more."""

    def close(self) -> None: ...


class OwnMemory:
    """A shard in this very process."""

    def __init__(self, kept: KeptShard, endpoint: Endpoint) -> None:
        self._kept, self._endpoint = kept, endpoint

    def add(self, block: Block) -> None:
        self._kept.shard.add(_columns(block), block.priorities)
        self._kept.tend(time.monotonic())

    def describe(self) -> dict[str, Any]:
        return self._kept.describe(self._endpoint)

    def take_limit(self, limit: int | None) -> bool:
        self._kept.shard.set_limit(limit)
        return self._kept.shard.has_room

    def close(self) -> None:
        self._kept.close()


class OtherMemory:
    """A shard that the first learner keeps, or a pod of its own; its answer waits while it may not take more."""

    def __init__(self, context: Context, settings: Settings, endpoint: Endpoint, links: list[Link]) -> None:
        """``links``: those of this sampler, of which this is one more."""
        dedicated = settings.replay.placement == "Dedicated"
        keepers = context.replays if dedicated else context.learners[:1]
        self._link = Link(context, keepers[context.index % len(keepers)], endpoint, "insert", alone=False)
        links.append(self._link)
        self._link.attach()

    def add(self, block: Block) -> None:
        self._link.send(items=_columns(block), priorities=block.priorities)

    def describe(self) -> None:
        return None

    def take_limit(self, limit: int | None) -> bool:
        return True

    def close(self) -> None:
        """Nothing: what is on its way is not needed any more."""


class News:
    """What is to be reported: counts of this sampler's life, and the returns since the last report."""

    def __init__(self, refresh_steps: int, now: float) -> None:
        self._refresh_steps = refresh_steps
        self._since = 0
        self._reported = now
        self._steps = self._episodes = 0
        self._returns: list[torch.Tensor] = []
        self._moments: list[torch.Tensor] = []

    def add(self, block: Block, length: int) -> None:
        """A block of ``length`` steps of each environment."""
        self._since += length
        self._steps += block.steps
        self._episodes += block.episodes
        self._returns.append(block.episode_return)
        if block.moments.numel():
            self._moments.append(block.moments)

    def due(self, now: float) -> bool:
        """Parameters are to be looked for, or the learner may begin to doubt that this sampler lives."""
        return self._since >= self._refresh_steps or now - self._reported >= REPORT_SECONDS

    def take(self, now: float) -> dict[str, Any]:
        """The report."""
        self._since, self._reported = 0, now
        returns = torch.cat(self._returns) if self._returns else torch.zeros(0)
        moments = torch.cat(self._moments) if self._moments else NO_MOMENTS
        self._returns, self._moments = [], []
        return {"steps": self._steps, "episodes": self._episodes, "returns": returns, "moments": moments}


def _columns(block: Block) -> dict[str, torch.Tensor]:
    return {**block.transitions}  # type: ignore[dict-item]


def _places(context: Context, samplers: int) -> tuple[range, int]:
    """The numbers of this sampler's environments among those of all samplers, and how many those are."""
    each = context.job.spec.environment.num_envs
    return range(context.index * each, (context.index + 1) * each), samplers * each
