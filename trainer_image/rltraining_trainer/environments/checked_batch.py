"""Checks users' vector environments and their return values, which Gymnasium neither converts nor checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

from rltraining_trainer.environments.mistakes import WrongValue, check_integers
from rltraining_trainer.environments.nested_spaces import shown
from rltraining_trainer.environments.packed_space import MASK_KEY
from rltraining_trainer.errors import UserCodeError

REQUIRED = ("num_envs", "single_observation_space", "single_action_space")


def check_batch(environments: VectorEnv, name: str, num_envs: int) -> VectorEnv:
    """Returns the vector environment with checks of its return values. Gymnasium's classes need none.

    Raises:
        UserCodeError: An attribute is missing, or there is another number of environments.
    """
    if type(environments.unwrapped).__module__.startswith("gymnasium."):
        return environments
    for attribute in REQUIRED:
        if not hasattr(environments, attribute):
            raise UserCodeError(
                f"environment {name!r}: the vector environment has no {attribute}; set it in the constructor"
            )
    if environments.num_envs != num_envs:
        raise UserCodeError(
            f"environment {name!r}: the vector environment was made with num_envs={num_envs}, but has "
            f"{environments.num_envs}; make num_envs environments"
        )
    return CheckedBatch(environments)


class CheckedBatch(VectorWrapper):
    """Raises WrongValue if a vector environment returns values that are unusable for learning."""

    def __init__(self, environments: VectorEnv) -> None:
        super().__init__(environments)
        self._mode = environments.metadata.get("autoreset_mode")
        self._over = np.zeros(environments.num_envs, bool)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, Any]:
        observation, info = self.env.reset(seed=seed, options=options)
        self._check(observation, info)
        self._over = np.zeros(self.num_envs, bool)
        return observation, info

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, Any]:
        observation, reward, terminated, truncated, info = self.env.step(actions)
        self._check(observation, info)
        if np.asarray(reward).dtype.kind not in "biuf":
            raise WrongValue(
                f"must return rewards that are floats, got an array of {np.asarray(reward).dtype}"
            )
        over = _flags("terminated", terminated) | _flags("truncated", truncated)
        self._check_ends(over, info)
        self._over = over
        return observation, reward, terminated, truncated, info

    def _check(self, observation: Any, info: Any) -> None:
        """Checks the type of observations that are one array, and the infos."""
        space = self.env.single_observation_space
        if (
            isinstance(observation, np.ndarray)
            and space.dtype is not None
            and observation.dtype != space.dtype
        ):
            if not np.can_cast(observation.dtype, space.dtype, "same_kind"):
                raise WrongValue(
                    f"must return observations of type {space.dtype} to match its observation space "
                    f"{shown(space)}, got {observation.dtype}"
                )
            check_integers(observation, space)
        if not isinstance(info, Mapping):
            raise WrongValue(f"must return infos as a dict of arrays, got {type(info).__qualname__}")
        if MASK_KEY in info and len(info[MASK_KEY]) != self.num_envs:
            raise WrongValue(
                f'must return info["{MASK_KEY}"] with {self.num_envs} rows, one for each environment, got '
                f"{len(info[MASK_KEY])}"
            )

    def _check_ends(self, over: np.ndarray, info: Mapping[str, Any]) -> None:
        """Checks that episodes end as the autoreset mode promises."""
        if (
            self._mode is AutoresetMode.NEXT_STEP
            and over.shape == self._over.shape
            and (over & self._over).any()
        ):
            raise WrongValue(
                "must reset an environment in the step after its episode has ended, since its autoreset mode is "
                "NEXT_STEP, but this step returned terminated or truncated again"
            )
        if self._mode is not AutoresetMode.SAME_STEP or not over.any():
            return
        final = info.get("final_obs")
        if final is None or any(final[b] is None for b in np.flatnonzero(over)):
            raise WrongValue(
                'must return the last observations of episodes in info["final_obs"], since its autoreset mode '
                "is SAME_STEP"
            )


def _flags(name: str, values: Any) -> np.ndarray:
    """Returns flags as an array of bools. Raises WrongValue for other values than 0 and 1."""
    flags = np.asarray(values)
    if flags.dtype.kind != "b" and not np.isin(flags, (0, 1)).all():
        raise WrongValue(f"must return {name} as bools, got an array of {flags.dtype} with other values")
    return flags.astype(bool)
