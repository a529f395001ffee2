"""Holds one environment of a batch, whose errors are returned instead of raised."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rltraining_trainer.environments.mistakes import copy_array, environment_error
from rltraining_trainer.environments.packed_space import MASK_KEY
from rltraining_trainer.environments.return_values import checked_reset, checked_step
from rltraining_trainer.errors import user_code_error


@dataclass(frozen=True, slots=True)
class Outcome:
    """The return value or the error of one request. Sent between processes."""

    observation: Any = None
    """Copied arrays of the space's shape and type. None after an error, ``make`` or ``close``."""
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    action_mask: Any = None
    """``info["action_mask"]``, the only info that is kept."""
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class Description:
    """The properties of an environment. Sent between processes."""

    observation_space: spaces.Space
    action_space: spaces.Space
    metadata: dict[str, Any]
    render_mode: str | None


Request = tuple[str, tuple[Any, ...]]
"""The name of a method of ``Slot`` and its arguments."""


class Slot:
    """Holds one environment and can recreate it.

    Args:
        make: Makes the environment. Raises TrainerError.
        name: The environment's name in messages.
    """

    def __init__(self, make: Callable[[], gym.Env], name: str) -> None:
        self._make, self.name = make, name
        self._environment: gym.Env | None = None
        self._ended = False
        self._space: spaces.Space = spaces.Discrete(1)

    def answer(self, request: Request | None) -> Outcome:
        """Carries out a request. Returns an empty outcome for None."""
        if request is None:
            return Outcome()
        method, arguments = request
        return getattr(self, method)(*arguments)

    def make(self) -> Outcome:
        """Makes the environment, after closing the previous one if there is one."""
        try:
            self.close()
            self._environment = self._make()
            self._space = self._environment.observation_space
        except BaseException as error:
            return Outcome(error=user_code_error(f"making environment {self.name!r}", error))
        return Outcome()

    def describe(self) -> Outcome:
        """Returns a ``Description`` in place of an observation."""
        environment = self._environment
        assert environment is not None, "made before"
        spaces = environment.observation_space, environment.action_space
        return Outcome(Description(*spaces, environment.metadata, environment.render_mode))

    def reset(self, seed: int | None, options: dict[str, Any] | None) -> Outcome:
        """Begins an episode and returns its first observation."""
        return self._call("reset", lambda environment: environment.reset(seed=seed, options=options))

    def step(self, action: Any) -> Outcome:
        """Steps the environment, or resets it and ignores the action if its episode has ended."""
        if self._ended:
            return self.reset(None, None)
        return self._call("step", lambda environment: environment.step(action))

    def render(self) -> Outcome:
        """Returns the environment's frame in place of an observation."""
        try:
            assert self._environment is not None, "made before"
            return Outcome(self._environment.render())
        except BaseException as error:
            return Outcome(error=user_code_error(f"environment {self.name!r}: render", error))

    def close(self) -> Outcome:
        """Closes the environment if there is one."""
        environment, self._environment = self._environment, None
        try:
            if environment is not None:
                environment.close()
        except BaseException as error:
            return Outcome(error=user_code_error(f"environment {self.name!r}: close", error))
        return Outcome()

    def _call(self, method: str, call: Callable[[gym.Env], Any]) -> Outcome:
        """Calls ``reset`` or ``step`` and converts the result, or the exception, to an outcome."""
        raw: Any = None
        try:
            if self._environment is None:
                return Outcome(error=RuntimeError(f"environment {self.name!r} could not be made"))
            returned = call(self._environment)
            # Check the return values, and copy the observation.
            reward, terminated, truncated = 0.0, False, False
            if method == "reset":
                raw, info = checked_reset(returned)
            else:
                raw, reward, terminated, truncated, info = checked_step(returned)
            mask = info.get(MASK_KEY)
            outcome = Outcome(conform(self._space, raw), reward, terminated, truncated, mask)
        except BaseException as error:
            self._ended = False
            return Outcome(error=environment_error(self.name, method, error, self._space, (raw,)))
        self._ended = outcome.terminated or outcome.truncated
        return outcome


def conform(space: spaces.Space, observation: Any) -> Any:
    """Copies ``observation`` into arrays of the space's shapes and types.

    The copy is needed because environments may reuse the arrays that they return.

    Raises:
        WrongObservation: The shape differs from the space's.
    """
    if isinstance(space, spaces.Dict):
        return {key: conform(part, observation[key]) for key, part in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(conform(part, item) for part, item in zip(space, observation, strict=True))
    if _is_text(space):
        return observation
    return copy_array(observation, space, space.dtype, space.shape)


def blank(space: spaces.Space) -> Any:
    """Returns a placeholder for an observation of the space: zeros and empty strings."""
    if isinstance(space, spaces.Dict):
        return {key: blank(part) for key, part in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(map(blank, space))
    return "" if _is_text(space) else np.zeros(space.shape or (), space.dtype)


def _is_text(space: spaces.Space) -> bool:
    return space.dtype is None or np.dtype(space.dtype).kind == "U"
