"""Vector environments with a separate seed for each episode of each environment."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import VectorizeMode
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.envs.registration import load_env_creator
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from rltraining_api.environment import Environment

from rltraining_trainer.environments.episode_seeds import (
    BLOCK,
    STEP,
    mixed,
    seed_of,
    seeds_of,
    with_seeded_episodes,
)
from rltraining_trainer.environments.make import (
    constructor_options,
    find,
    make_environments,
    making,
)
from rltraining_trainer.errors import BadConfiguration

SEEDED_RESETS = "seeded_resets"
"""Key in the metadata of a class of vector environments. True: ``reset`` takes a list with a seed for each environment."""

FEW = 4
"""Up to this number of environments, stepping them one by one is faster."""


def make_seeded_environments(spec: Environment, num_envs: int) -> VectorEnv:
    """Makes environments like ``make_environments``, but each episode has its own seed.

    Their episodes start as ``block_options`` specify. A vector environment is used if it has no wrappers, resets by
    ``options["reset_mask"]`` (mode Disabled), and has ``SEEDED_RESETS`` in its metadata. Otherwise uses single environments.

    Raises like ``make_environments``, and BadConfiguration if no environments take such seeds, or they reset themselves.
    """
    registered, wrappers = find(spec)
    creator = registered.vector_entry_point
    wrapped = bool(wrappers or registered.additional_wrappers)
    prefers_single = registered.entry_point is not None and num_envs <= FEW
    if creator is None or spec.stepping != "Serial" or wrapped or prefers_single:
        return make_environments(with_seeded_episodes(spec), num_envs)
    if creator == CARTPOLE:
        seeded = copy.deepcopy(registered)
        seeded.vector_entry_point = SeededCartPole  # type: ignore[assignment]
        with making(spec):
            options = constructor_options(spec, {})
            return SeededBatch(gym.make_vec(seeded, num_envs, VectorizeMode.VECTOR_ENTRY_POINT, **options))
    with making(spec):
        loaded = load_env_creator(creator) if isinstance(creator, str) else creator
    metadata = getattr(loaded, "metadata", {})
    if metadata.get(SEEDED_RESETS):
        if metadata.get("autoreset_mode") is not AutoresetMode.DISABLED:
            raise BadConfiguration(
                f"spec.reproducible: environment {spec.id!r} has {SEEDED_RESETS!r} in its metadata, but resets itself: "
                "set metadata['autoreset_mode'] to AutoresetMode.DISABLED"
            )
        return SeededBatch(make_environments(spec, num_envs))
    return make_environments(with_seeded_episodes(spec), num_envs)


class SeededBatch(VectorWrapper):
    """Seeds each episode of a vector environment like ``SeededEpisodes``."""

    def __init__(self, environments: VectorEnv) -> None:
        super().__init__(environments)
        self._key = 0
        self._episodes = self._skips = np.zeros(environments.num_envs, np.int64)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins the next episodes, of all environments or of ``reset_mask``, or the episodes in ``block_options``."""
        options = options or {}
        mask = options.get("reset_mask", np.ones(self.num_envs, bool))
        if BLOCK in options:
            key, *numbers = options[BLOCK]
            self._key = seed_of(*key)
            self._episodes, self._skips = (np.array(each, np.int64) for each in numbers)
        else:
            self._episodes = self._episodes + mask
        return self._begin(mask)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(actions)
        waits = self._skips > 0
        if waits.any():
            # Environments that ignore this step begin their episode again.
            self._skips = self._skips - waits
            observation, info = self._begin(waits)
            reward = np.where(waits, 0.0, reward)
            terminated, truncated = terminated & ~waits, truncated & ~waits
        return observation, reward, terminated, truncated, info

    def _begin(self, mask: np.ndarray) -> tuple[Any, dict[str, Any]]:
        seeds: list[int | None] = [None] * self.num_envs
        (begun,) = np.nonzero(mask)
        drawn = seeds_of(self._key, begun, self._episodes[begun])
        for b, seed in zip(begun.tolist(), drawn.tolist(), strict=True):
            seeds[b] = seed
        return self.env.reset(seed=seeds, options={"reset_mask": mask})  # type: ignore[arg-type]


CARTPOLE = "gymnasium.envs.classic_control.cartpole:CartPoleVectorEnv"


class SeededCartPole(CartPoleVectorEnv):
    """Gymnasium's vector CartPole, with a seed for each environment."""

    state: Any

    metadata = {  # noqa: RUF012 # as in gymnasium
        **CartPoleVectorEnv.metadata,
        "autoreset_mode": AutoresetMode.DISABLED,
        SEEDED_RESETS: True,
    }

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Resets the environments in ``options["reset_mask"]`` ``[B]``, each with its seed in ``seed``."""
        mask = np.ones(self.num_envs, bool) if options is None else options["reset_mask"]
        state = np.zeros((4, self.num_envs)) if self.state is None else self.state
        # Draw four uniform numbers for each of these environments.
        begun = np.flatnonzero(mask)
        seeds = np.array([seed[b] for b in begun.tolist()], np.uint64)
        bits = mixed(seeds * np.uint64(4) + STEP * np.arange(1, 5, dtype=np.uint64)[:, None])
        state[:, begun] = self.low + (self.high - self.low) * ((bits >> np.uint64(11)) * 2.0**-53)
        self.state, self.steps[mask] = state, 0
        return state.T.astype(np.float32), {}

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self.prev_done[:] = False  # otherwise gymnasium resets the environments that have ended
        return super().step(action)
