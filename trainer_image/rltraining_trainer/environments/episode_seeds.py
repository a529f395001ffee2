"""Environments with a separate seed for each episode, so that another process can play an episode again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from rltraining_api.environment import Environment, Wrapper

from rltraining_trainer.errors import BadConfiguration

BLOCK = "rltraining/block"
"""Key in the options of a reset that places the environments in a block."""

STEP = np.uint64(0x9E3779B97F4A7C15)
"""Distance between the numbers that ``mixed`` turns into a random sequence (2^64 divided by the golden ratio)."""

EPISODES, NOISE, MINIBATCHES = range(3)
"""Purposes of seeds. The purpose is the second number of a seed's key, after the run's seed."""


def seed_of(*key: int) -> int:
    """Returns a 31-bit seed for a key of non-negative numbers, since many simulators do not accept larger seeds."""
    return int(np.random.SeedSequence(key).generate_state(1)[0] >> 1)


def mixed(numbers: np.ndarray) -> np.ndarray:
    """Returns a random-looking uint64 for each uint64, as SplitMix64 does. Equal numbers give equal results."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


def seeds_of(key: int, *numbers: np.ndarray) -> np.ndarray:
    """Returns 31-bit seeds ``[N]`` for N rows of non-negative numbers, much faster than N calls of ``seed_of``."""
    seeds = np.full(len(numbers[0]), key, np.uint64)
    for column in numbers:
        seeds = mixed(seeds + STEP * (column.astype(np.uint64) + np.uint64(1)))
    return (seeds >> np.uint64(33)).astype(np.int64)


def with_seeded_episodes(spec: Environment) -> Environment:
    """Returns the environment with ``SeededEpisodes`` around each single environment.

    Raises BadConfiguration if there are no single environments. The environment's module must be imported.
    """
    registered = gym.spec(spec.id.rpartition(":")[2])
    if registered.entry_point is None:
        raise BadConfiguration(
            f"spec.reproducible needs single environments, but {spec.id!r} has only a vector_entry_point: register an "
            "entry_point too, or leave reproducible out"
        )
    wrapper = Wrapper(entry_point=f"{__name__}:{SeededEpisodes.__name__}")
    return spec.model_copy(update={"wrappers": (*spec.wrappers, wrapper)})


def block_options(key: Sequence[int], episodes: Sequence[int], skips: Sequence[int]) -> dict[str, Any]:
    """Returns options with which ``reset(seed=0)`` of a vector environment begins an episode in each environment.

    Args:
        key: Common start of the keys of all seeds: the run's seed, EPISODES and the block's number.
        episodes: Number of each environment's episode.
        skips: How many of the next steps each environment ignores.
    """
    return {BLOCK: (tuple(key), tuple(episodes), tuple(skips))}


class SeededEpisodes(gym.Wrapper):
    """Seeds each episode by a key, the index of the environment, and the number of the episode.

    An environment receives its index through the seed of a reset, to which vector environments add the index. Environments
    can ignore their first steps, so that a vector environment can replay episodes of different lengths up to the same step.
    """

    def __init__(self, environment: gym.Env) -> None:
        super().__init__(environment)
        self._key: tuple[int, ...] = ()
        self._episode = self._skips = 0
        self._begun: tuple[Any, float, bool, bool, dict[str, Any]]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begins the next episode, or the episode in ``block_options``."""
        if options is not None and BLOCK in options:
            assert seed is not None
            key, episodes, skips = options[BLOCK]
            self._key, self._episode, self._skips = (*key, seed), episodes[seed], skips[seed]
        else:
            self._episode += 1
        observation, info = self.env.reset(seed=seed_of(*self._key, self._episode))
        self._begun = observation, 0.0, False, False, info
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        if self._skips:
            self._skips -= 1
            return self._begun
        return self.env.step(action)
