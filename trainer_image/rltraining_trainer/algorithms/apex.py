"""Ape-X, shared by DQN and DDPG (Horgan et al. 2018, arXiv 1803.00933).

Samplers insert transitions with initial priorities into a distributed prioritized replay. The learner updates from its batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from rltraining_trainer.algorithms.apex_learner import ApexLearner
from rltraining_trainer.algorithms.reproducible_replay import learn_from_transitions, sample_transitions
from rltraining_trainer.algorithms.scale_warnings import scale_warnings
from rltraining_trainer.algorithms.transition_collector import TransitionCollector
from rltraining_trainer.algorithms.transitions import Actor, transition_columns
from rltraining_trainer.dataflow import FIRST_VERSION
from rltraining_trainer.dataflow.flat import flatten_parameters
from rltraining_trainer.dataflow.reduce import Reduce
from rltraining_trainer.dataflow.replay import Column, ReplayBatch
from rltraining_trainer.networks import PolicyNetwork
from rltraining_trainer.world import World

BLOCK_STEPS = 16
"""Largest number of steps of each environment between two insertions."""


def learn(world: World, learner: ApexLearner[Any], columns: Mapping[str, Column] | None = None) -> None:
    """The learner's function: updates from batches of the replay. Several learners average their gradients.

    ``columns``: columns of the replay. None: the columns of transitions.
    """
    settings = world.settings
    columns = columns or transition_columns(*world.spaces)
    if world.spec.reproducible is not None:
        learn_from_transitions(world, learner, columns)
        return
    replay = world.replay(settings.replay, batch_size=settings.batch_size, columns=columns)
    run = world.run(algorithm=learner)
    begun = learner.updates

    def update(batch: ReplayBatch | None, reduce: Reduce) -> dict[str, Tensor]:
        """Makes one update of all learners. ``batch``: None if only other learners have one."""
        try:
            learner.merge_moments(run.take_moments(), reduce)
            # Normalise the importance weights, so that the largest of all learners is 1.
            largest = batch.largest_weight if batch is not None else 0.0
            normalizer = run.maximum(largest)
            if batch is None:
                return learner.step(None, reduce=reduce)[1]
            items: Any = batch.items
            if learner.updates == begun:
                for warning in scale_warnings(world.spec, world.spaces[0], settings, items):
                    run.warn(warning.reason, warning.message)
            priorities, terms = learner.step(items, batch.weights, normalizer / largest, reduce)
        except BaseException:
            if batch is not None:
                replay.discard(batch)
            raise
        replay.update_priorities(batch, priorities)
        return terms

    run.train(replay.sample, update)


def sample(world: World, actor: Actor, network: PolicyNetwork) -> None:
    """The sampler's function: acts with exploration, and inserts transitions into the replay."""
    settings, size = world.settings, world.spec.environment.num_envs
    length = min(BLOCK_STEPS, settings.parameter_refresh_steps)
    if world.spec.reproducible is not None:
        sample_transitions(world, actor, network, length)
        return

    # Make the environments, and get the learner's parameters.
    replay = world.replay(settings.replay, batch_size=settings.batch_size)
    environments = world.environments()
    seed = world.start(flatten_parameters(network))

    # Number this sampler's environments among those of all samplers. Each explores to a different degree.
    samplers, numbers = len(world.members("sampler")), range(world.index * size, (world.index + 1) * size)
    collector = TransitionCollector(
        actor,
        environments,
        length=length,
        n_step=settings.n_step,
        discount=settings.discount,
        reward_clip=settings.reward_clip,
        reward_scale=settings.reward_scale,
        seed=seed,
        environments=numbers,
        total=samplers * size,
    )
    steps = 0  # steps of each environment since the last request for parameters
    while True:
        # Act, count the steps, and insert the transitions.
        actor.warming_up = world.version <= FIRST_VERSION
        block = collector.collect()
        world.count(block.steps, block.episode_return, episodes=block.episodes, moments=[block.moments])
        replay.extend(block.transitions, block.priorities)

        # Request newer parameters now and then, and follow a change of the number of samplers.
        steps += collector.length
        if steps >= settings.parameter_refresh_steps:
            steps = 0
            replay.refresh()
        if samplers != (samplers := len(world.members("sampler"))):
            collector.place(numbers, samplers * size)


def keep(world: World) -> None:
    """The function of a replay pod: keeps a shard of the replay."""
    world.keep_replay(world.settings.replay, transition_columns(*world.spaces))
