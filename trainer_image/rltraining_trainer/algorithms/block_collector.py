"""Collects the rollouts of a block of environments, which another sampler can continue."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rltraining_trainer.algorithms.unrolls import Unroll, UnrollCollector
from rltraining_trainer.dataflow.block_state import BlockState
from rltraining_trainer.environments import EpisodeTracker
from rltraining_trainer.environments.episode_seeds import EPISODES, NOISE, block_options, seed_of
from rltraining_trainer.errors import BadConfiguration

CHECKED_STEPS = 64
"""Maximum steps for which ``check`` compares the environments with themselves."""


class BlockCollector(UnrollCollector):
    """An ``UnrollCollector`` with a state that fits into a message.

    Its environments have ``SeededEpisodes``. Call ``begin`` before the first rollout of a block. The exploration of each
    rollout is seeded by its block and update, so that nothing depends on what this process did before.
    """

    def __post_init__(self) -> None:
        self._batch = self.stepper.environments.num_envs
        self.block, self.update = -1, -1
        """The block, and the update that its next rollout is for."""

    def begin(self, block: int, update: int, state: BlockState | None) -> None:
        """Places the environments in a block, and plays their present episodes again.

        Args:
            block: Number of the block.
            update: Number of updates before the next rollout.
            state: The block's state. None: its beginning.

        Raises:
            BadConfiguration: The environments did not return the same observations again.
        """
        self.block = -1  # of no block, if the environment raises
        # Begin the present episode of each environment.
        batch = self._batch
        episodes, ages = [0] * batch, [0] * batch
        if state is not None:
            episodes, ages = state.episodes.tolist(), state.ages.tolist()
        oldest = max(ages)
        options = block_options((self.seed, EPISODES, block), episodes, [oldest - age for age in ages])
        observation, first = self.stepper.reset(0, options), np.ones(batch, bool)

        # Take the same actions again.
        for action in state.actions if state is not None else ():
            observation = self.stepper.step(self.distribution.to_environment(action)).observation
        if state is not None:
            if not np.array_equal(
                observation, state.observation.numpy(), equal_nan=observation.dtype.kind == "f"
            ):
                raise not_reproducible(self.stepper.name, f"in the first {oldest} steps of an episode")
            first = state.first.numpy().copy()

        # Continue from there.
        self._observation, self._first = observation, first
        self._state = self.network.initial_state(batch)
        self._episodes, self._discounted_return = EpisodeTracker(batch), np.zeros(batch)
        if state is not None:
            self._state = tuple(state.after["state"])
            self._episodes.set_state(state.after["episodes"])
            self._discounted_return = np.array(state.after["discounted_return"], np.float64)
        self.block, self.update = block, update

    def collect(self) -> Unroll:
        torch.manual_seed(seed_of(self.seed, NOISE, self.block, self.update))
        unroll = super().collect()
        self.update += 1
        return unroll

    @property
    def after(self) -> dict[str, Any]:
        """What a sampler that continues the block needs beside the rollouts."""
        return {
            "state": tuple(part.clone() for part in self._state),
            "episodes": self._episodes.get_state(),
            "discounted_return": self._discounted_return.tolist(),
        }

    def check(self) -> None:
        """Checks that environments are functions of their seeds and actions, by playing the first steps twice.

        Raises BadConfiguration if they are not.
        """
        length, self.length = self.length, min(self.length, CHECKED_STEPS)
        one, other = self._first_rollout(), self._first_rollout()
        self.length, self.block = length, -1
        if not _equal(one["observation"][0], other["observation"][0]):
            raise not_reproducible(self.stepper.name, "at the first reset")
        for t in range(len(one["reward"])):
            results = ((it["observation"][t + 1], it["reward"][t], it["ended"][t]) for it in (one, other))
            if not all(map(_equal, *results)):
                raise not_reproducible(self.stepper.name, f"at step {t + 1}")

    def _first_rollout(self) -> Unroll:
        self.begin(0, 0, None)
        return self.collect()


def not_reproducible(name: str, where: str) -> BadConfiguration:
    """Returns the error for an environment that is random in another way than by its seed."""
    return BadConfiguration(
        f"spec.reproducible: environment {name!r} is not a function of its seed and its actions: the second time it gave "
        f"another result {where}. Derive all of its random numbers from reset(seed=...), or leave reproducible out"
    )


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    return (
        torch.equal(one.nan_to_num(), other.nan_to_num())
        if one.is_floating_point()
        else torch.equal(one, other)
    )
