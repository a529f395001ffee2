"""The learner and the sampler of ``spec.reproducible``.

The environments of a job are blocks, which samplers only host. Each rollout is a function of its block's state, the parameters
and a seed of block and update. Each update is a function of the rollouts in the order of blocks. The result does not depend on
which process makes a rollout, or whether a rollout is made twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from rltraining_trainer.algorithms.block_collector import BlockCollector, UnrollBlockCollector
from rltraining_trainer.algorithms.unrolls import Unroll
from rltraining_trainer.dataflow import flatten_parameters
from rltraining_trainer.dataflow.block_queue import BlockRollout, Work
from rltraining_trainer.dataflow.reduce import Reduce
from rltraining_trainer.environments.episode_seeds import MINIBATCHES, seed_of
from rltraining_trainer.networks import Distribution, PolicyNetwork
from rltraining_trainer.world import Algorithm, World

_LOG = logging.getLogger(__name__)


class UnrollLearner(Algorithm, Protocol):
    """A learner that makes updates from unrolls."""

    environment_steps: int

    def step(self, unrolls: Sequence[Unroll], reduce: Reduce) -> Mapping[str, Tensor | float]: ...


def learn_from_blocks(
    world: World, learner: UnrollLearner, distribution: Distribution, length: int, lag: int = 0
) -> None:
    """The learner's function of A2C, PPO and IMPALA: makes each update from one unroll of every block.

    Args:
        length: number of steps of a rollout.
        lag: number of updates that the parameters of a rollout lack, 0 or 1. With 1, samplers make rollouts while the
            learner updates.
    """
    # Sums of several threads depend on their number.
    torch.set_num_threads(1)
    network: Any = learner.network
    blocks = world.blocks(world.unroll_reader(network, distribution, length).unroll, lag)
    run = world.run(algorithm=learner)

    def update(rollouts: Sequence[BlockRollout], reduce: Reduce) -> Mapping[str, Tensor | float]:
        """Makes all updates from these rollouts, even if this process is asked to end meanwhile."""
        number = blocks.update
        torch.manual_seed(seed_of(world.spec.seed, MINIBATCHES, number))
        unrolls: list[Any] = [rollout.unroll for rollout in rollouts]
        terms = learner.step(unrolls, reduce)
        blocks.end(learner.parameters, learner.environment_steps)
        for unroll in unrolls:
            steps, episodes = int(unroll["valid"].sum()), int(unroll["episodes"].sum())
            run.count(steps, unroll["episode_return"], episodes=episodes, lag=min(lag, number))
        return terms

    run.train(blocks.take, update)


def sample_unrolls(world: World, length: int) -> None:
    """The sampler's function of A2C, PPO and IMPALA: makes the unrolls that the learner requests, of ``length`` steps."""
    network, distribution = world.actor_critic()

    def collector() -> BlockCollector:
        environments, seed = world.seeded_environments(), world.spec.seed
        return UnrollBlockCollector.of(world.settings, length, network, distribution, environments, seed)

    sample_blocks(world, network, collector)


def sample_blocks(world: World, network: PolicyNetwork, collector: Callable[[], BlockCollector]) -> None:
    """The sampler's function: makes the rollouts that the learner requests.

    ``collector`` returns a new collector with its own environments.
    """
    # Make the environments of this sampler's share of the blocks, and check that they can be reproduced.
    torch.set_num_threads(1)
    parameters = flatten_parameters(network)
    path = world.blocks()
    host = BlockHost(collector)
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

    def __init__(self, make: Callable[[], BlockCollector]) -> None:
        self._make = make
        self._collectors: list[BlockCollector] = []

    @property
    def held(self) -> dict[int, int]:
        """The update of the next rollout of each block. Blocks that have moved to another sampler have earlier updates."""
        return {one.block: one.update for one in self._collectors if one.block >= 0}

    def add(self) -> BlockCollector:
        """Makes environments for one more block."""
        self._collectors.append(self._make())
        return self._collectors[-1]

    def check(self) -> None:
        """Raises BadConfiguration if the environments are not functions of their seeds and actions."""
        self._collectors[0].check()

    def collect(self, work: Sequence[Work]) -> list[BlockRollout]:
        """Makes rollouts. Takes over blocks that another sampler hosted before."""
        blocks, rollouts = {one.block for one in work}, []
        for one in work:
            collector = self._find(one.block, blocks)
            if (collector.block, collector.update) != (one.block, one.update):
                if one.state is not None:
                    _LOG.info("takes over block %d at update %d", one.block, one.update)
                elif one.update > 0:
                    raise RuntimeError(
                        f"block {one.block} was dealt without its state at update {one.update}"
                    )
                collector.begin(one.block, one.update, one.state)
            rollout = collector.rollout()
            rollouts.append(BlockRollout(one.block, one.update, rollout, collector.after))
        return rollouts

    def _find(self, block: int, blocks: set[int]) -> BlockCollector:
        """Returns the collector of a block, or one that plays none of these blocks, or a new one."""
        mine = [one for one in self._collectors if one.block == block]
        free = [one for one in self._collectors if one.block not in blocks]
        return mine[0] if mine else free[0] if free else self.add()
