"""Collects the rollouts of a block of environments, which another sampler can continue."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rltraining_trainer.algorithms.transition_collector import Rows, TransitionCollector
from rltraining_trainer.algorithms.unrolls import UnrollCollector
from rltraining_trainer.dataflow.block_state import BlockState
from rltraining_trainer.environments import EpisodeTracker, Stepper
from rltraining_trainer.environments.episode_seeds import EPISODES, NOISE, block_options, seed_of
from rltraining_trainer.errors import BadConfiguration

CHECKED_STEPS = 64
"""Maximum steps for which ``check`` compares the environments with themselves."""


class BlockCollector(ABC):
    """Makes the rollouts of one block at a time. Call ``begin`` before the first rollout of a block.

    Its environments have a seed for each episode (see ``make_seeded_environments``). The exploration of each rollout is
    seeded by its block and update, so that nothing depends on what this process did before.
    """

    stepper: Stepper
    length: int
    seed: int
    block = -1
    """The block. -1: none."""
    update = -1
    """The update that the block's next rollout is for."""

    def begin(self, block: int, update: int, state: BlockState | None) -> None:
        """Places the environments in a block, and plays their present episodes again.

        Args:
            block: Number of the block.
            update: Number of updates before the next rollout.
            state: The block's state. None: its beginning.

        Raises:
            BadConfiguration: The environments did not return the same observations again.
        """
        self.block = -1  # belongs to no block if the environment raises
        # Begin the present episode of each environment.
        batch = self.stepper.environments.num_envs
        episodes, ages = [0] * batch, [0] * batch
        if state is not None:
            episodes, ages = state.episodes.tolist(), state.ages.tolist()
        oldest = max(ages)
        options = block_options((self.seed, EPISODES, block), episodes, [oldest - age for age in ages])
        observation, first = self.stepper.reset(0, options), np.ones(batch, bool)

        if state is not None:
            # Take the same actions again. An environment that waits gets its first action.
            for action in _played_again(state):
                observation = self.stepper.step(self.to_environment(action)).observation
            if not np.array_equal(
                observation, state.observation.numpy(), equal_nan=observation.dtype.kind == "f"
            ):
                raise not_reproducible(self.stepper.name, f"in the first {oldest} steps of an episode")
            first = state.first.numpy().copy()

        # Continue from there.
        self.enter(block, observation, first, None if state is None else state.after)
        self.block, self.update = block, update

    def rollout(self) -> dict[str, Any]:
        """Makes the next rollout of the block, with columns as ``following`` needs them."""
        torch.manual_seed(seed_of(self.seed, NOISE, self.block, self.update))
        rollout = self.make_rollout()
        self.update += 1
        return rollout

    def check(self) -> None:
        """Checks that environments are functions of their seeds and actions, by playing the first steps twice.

        Raises BadConfiguration if they are not.
        """
        length, self.length = self.length, min(self.length, CHECKED_STEPS)
        one, other = self._first_steps(), self._first_steps()
        self.length, self.block = length, -1
        if not _equal(one[0][0], other[0][0]):
            raise not_reproducible(self.stepper.name, "at the first reset")
        for t in range(len(one[1])):
            if not all(map(_equal, (one[0][t + 1], one[1][t]), (other[0][t + 1], other[1][t]))):
                raise not_reproducible(self.stepper.name, f"at step {t + 1}")

    def _first_steps(self) -> tuple[Tensor, Tensor]:
        self.begin(0, 0, None)
        return self.results_of(self.rollout())

    @abstractmethod
    def enter(self, block: int, observation: np.ndarray, first: np.ndarray, after: Any) -> None:
        """Continues with these observations ``[B, ...]``. ``after``: see ``after``, or None at the block's beginning."""

    @abstractmethod
    def make_rollout(self) -> dict[str, Any]:
        """Takes the next ``length`` steps."""

    @property
    @abstractmethod
    def after(self) -> dict[str, Any]:
        """The state that a sampler needs, in addition to the rollouts, to continue the block."""

    @abstractmethod
    def to_environment(self, action: Tensor) -> np.ndarray:
        """Converts the actions of a rollout for the environments."""

    @abstractmethod
    def results_of(self, rollout: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """Returns the observations ``[T+1, B, ...]`` and the rewards and ends ``[T, 2, B]`` of a rollout."""


class UnrollBlockCollector(BlockCollector, UnrollCollector):
    """Makes rollouts that are ``Unroll``."""

    def __post_init__(self) -> None:
        self._batch = self.stepper.environments.num_envs

    def enter(self, block: int, observation: np.ndarray, first: np.ndarray, after: Any) -> None:
        self._observation, self._first = observation, first
        self._state = self.network.initial_state(self._batch)
        self._episodes, self._discounted_return = EpisodeTracker(self._batch), np.zeros(self._batch)
        if after is not None:
            self._state = tuple(after["state"])
            self._episodes.set_state(after["episodes"])
            self._discounted_return = np.array(after["discounted_return"], np.float64)

    def make_rollout(self) -> dict[str, Any]:
        return dict(self.collect())

    @property
    def after(self) -> dict[str, Any]:
        return {
            "state": tuple(part.clone() for part in self._state),
            "episodes": self._episodes.get_state(),
            "discounted_return": self._discounted_return.tolist(),
        }

    def to_environment(self, action: Tensor) -> np.ndarray:
        return self.distribution.to_environment(action)

    def results_of(self, rollout: dict[str, Any]) -> tuple[Tensor, Tensor]:
        return rollout["observation"], torch.stack((rollout["reward"], rollout["ended"].float()), 1)


@dataclass
class TransitionBlockCollector(BlockCollector, TransitionCollector):
    """Makes rollouts of ``Transitions`` with priorities, and with the columns that ``following`` needs.

    Attributes:
        warmup_steps: steps of all blocks that are made before the actor stops warming up.
    """

    warmup_steps: int

    def __post_init__(self) -> None:
        self._batch = self.stepper.environments.num_envs

    def enter(self, block: int, observation: np.ndarray, first: np.ndarray, after: Any) -> None:
        self._observation, self._first = observation, first
        self._episodes, self._carried = EpisodeTracker(self._batch), None
        self.environments = range(block * self._batch, (block + 1) * self._batch)
        self._memory: Tensor | None = None
        if after is not None:
            self._episodes.set_state(after["episodes"])
            self._carried = Rows(*(after["carried"][name].numpy() for name in Rows._fields))
            self._memory = after["memory"]

    def make_rollout(self) -> dict[str, Any]:
        # Prepare the actor, which other blocks use too. Warming up ends at the same rollout in every run.
        self.place(self.environments, self.total)
        self.actor.warming_up = self.update * self.length * self.total < self.warmup_steps
        self.actor.memory = self._memory
        result = self.collect()
        rows, self._memory = self.new_rows, self.actor.memory
        return {
            "transitions": dict(result.transitions),
            "priorities": result.priorities,
            "steps": result.steps,
            "episodes": result.episodes,
            "episode_return": result.episode_return,
            "moments": result.moments,
            "action": torch.from_numpy(rows.action),
            "observation": torch.from_numpy(self._observation[None].copy()),  # environments may reuse theirs
            "first": torch.from_numpy(self.new_first),
        }

    @property
    def after(self) -> dict[str, Any]:
        assert self._carried is not None
        carried = {name: torch.from_numpy(column) for name, column in self._carried._asdict().items()}
        return {"episodes": self._episodes.get_state(), "carried": carried, "memory": self._memory}

    def to_environment(self, action: Tensor) -> np.ndarray:
        return self.actor.to_environment(action)

    def results_of(self, rollout: dict[str, Any]) -> tuple[Tensor, Tensor]:
        rows = self.new_rows
        observations = np.concatenate((rows.observation, self._observation[None]))
        results = np.stack((rows.reward, (rows.terminated | rows.truncated).astype(np.float32)), 1)
        return torch.from_numpy(observations), torch.from_numpy(results)


def _played_again(state: BlockState) -> Tensor:
    """Returns the actions ``[R, B, ...]`` of a block, with an environment's first action in place of earlier ones."""
    rows = len(state.actions)
    starts = (rows - state.ages).clamp(max=max(0, rows - 1))
    index = torch.maximum(torch.arange(rows)[:, None], starts)
    return state.actions[index, torch.arange(len(starts))]


def not_reproducible(name: str, where: str) -> BadConfiguration:
    """Returns the error for an environment that is not determined by its seed and actions."""
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
