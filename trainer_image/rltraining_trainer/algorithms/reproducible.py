"""The learner and the sampler of ``spec.reproducible``, for algorithms with ``RolloutGradients``.

The environments of a job are blocks, which samplers only host. Each rollout is a function of its block's state, the parameters
and a seed of block and update, and each update one of the rollouts in the order of blocks. It does not matter which process
makes a rollout, or whether it is made twice.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from rltraining_trainer.algorithms.block_collector import BlockCollector
from rltraining_trainer.algorithms.reduce import Reduce
from rltraining_trainer.algorithms.rollout_learner import RolloutGradients, RolloutLearner
from rltraining_trainer.dataflow import flatten_parameters
from rltraining_trainer.dataflow.block_queue import BlockRollout, Work
from rltraining_trainer.environments.episode_seeds import MINIBATCHES, seed_of
from rltraining_trainer.networks import ActorCritic, Distribution
from rltraining_trainer.world import World

_LOG = logging.getLogger(__name__)


def learn_from_blocks(world: World, kind: type[RolloutGradients]) -> None:
    """The learner's function: makes each update from one rollout of every block."""
    # Sums of several threads depend on their number.
    torch.set_num_threads(1)
    network, distribution = world.actor_critic()
    learner = RolloutLearner(network, distribution, world.settings, kind, world.total_steps, world.device)
    blocks = world.blocks(network, distribution)
    run = world.run(algorithm=learner)

    def update(rollouts: Sequence[BlockRollout], reduce: Reduce) -> Mapping[str, float]:
        """Makes all updates from these rollouts, also if this process is asked to end meanwhile."""
        torch.manual_seed(seed_of(world.spec.seed, MINIBATCHES, blocks.update))
        unrolls: list[Any] = [rollout.unroll for rollout in rollouts]
        terms = learner.step(unrolls, reduce)
        blocks.advance(learner.parameters, learner.environment_steps)
        for unroll in unrolls:
            steps, episodes = int(unroll["valid"].sum()), int(unroll["episodes"].sum())
            run.count(steps, unroll["episode_return"], episodes=episodes, lag=0)
        return terms

    run.train(blocks.take, update)


def sample_blocks(world: World) -> None:
    """The sampler's function: makes the rollouts that the learner asks for."""
    # Make the environments of this sampler's share of the blocks, and check that they can be reproduced.
    torch.set_num_threads(1)
    network, distribution = world.actor_critic()
    parameters = flatten_parameters(network)
    path = world.blocks(network, distribution)
    host = BlockHost(world, network, distribution)
    assert world.spec.reproducible is not None
    for _ in range(-(-world.spec.reproducible.blocks // max(1, len(world.members("sampler"))))):
        host.add()
    host.check()
    world.start(parameters)

    # Make rollouts, and send them together.
    while True:
        path.push(host.collect(path.work), host.held)


class BlockHost:
    """The blocks that a sampler has at present."""

    def __init__(self, world: World, network: ActorCritic, distribution: Distribution) -> None:
        self._world, self._network, self._distribution = world, network, distribution
        self._collectors: list[BlockCollector] = []

    @property
    def held(self) -> dict[int, int]:
        """The update that the next rollout of each block is for. Blocks that have moved have earlier updates."""
        return {one.block: one.update for one in self._collectors if one.block >= 0}

    def add(self) -> BlockCollector:
        """Makes environments for one more block."""
        settings = self._world.settings
        collector = BlockCollector.of(
            settings,
            settings.rollout_length,
            self._network,
            self._distribution,
            self._world.seeded_environments(),
            self._world.spec.seed,
        )
        self._collectors.append(collector)
        return collector

    def check(self) -> None:
        """Raises BadConfiguration if the environments are not functions of their seeds and actions."""
        self._collectors[0].check()

    def collect(self, work: Sequence[Work]) -> list[BlockRollout]:
        """Makes rollouts. Blocks that another sampler had before are taken over."""
        blocks, rollouts = {one.block for one in work}, []
        for one in work:
            collector = self._find(one.block, blocks)
            if (collector.block, collector.update) != (one.block, one.update):
                if one.state is not None:
                    _LOG.info("takes over block %d at update %d", one.block, one.update)
                collector.begin(one.block, one.update, one.state)
            unroll = collector.collect()
            rollouts.append(BlockRollout(one.block, one.update, dict(unroll), collector.after))
        return rollouts

    def _find(self, block: int, blocks: set[int]) -> BlockCollector:
        """Returns the collector of a block, or one that plays none of these blocks, or a new one."""
        mine = [one for one in self._collectors if one.block == block]
        free = [one for one in self._collectors if one.block not in blocks]
        return mine[0] if mine else free[0] if free else self.add()
