"""Checks the return values of ``reset`` and ``step``: reward, flags and info."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from rltraining_trainer.environments.mistakes import WrongValue, check_integers, shape_of
from rltraining_trainer.environments.packed_space import MASK_KEY

Info = dict[str, Any]
"""The infos that are kept: ``action_mask``, if the environment returned one."""


def checked_reset(returned: Any) -> tuple[Any, Info]:
    """Returns (observation, info).

    Raises:
        WrongValue: The info is not a dict.
        ValueError, TypeError: It is not a pair.
    """
    observation, info = returned
    return observation, _kept(info)


def checked_step(returned: Any) -> tuple[Any, float, bool, bool, Info]:
    """Returns (observation, reward, terminated, truncated, info).

    Takes 0.2 µs if all types are right already, since it is called in every step.

    Raises:
        WrongValue: The reward, a flag or the info has a wrong type.
        ValueError, TypeError: There are not five values.
    """
    observation, reward, terminated, truncated, info = returned
    if type(reward) is not float:
        reward = _number(reward)
    if type(terminated) is not bool:
        terminated = _flag("terminated", terminated)
    if type(truncated) is not bool:
        truncated = _flag("truncated", truncated)
    return observation, reward, terminated, truncated, _kept(info)


class CheckedEnvironment(gym.Wrapper):
    """Checks the return values of an environment before a vector environment converts them."""

    def __init__(self, environment: gym.Env) -> None:
        super().__init__(environment)
        self._space = environment.observation_space
        self._integers = self._space.dtype is not None and self._space.dtype.kind in "iu"

    def reset(self, **kwargs: Any) -> tuple[Any, Info]:
        returned = checked_reset(self.env.reset(**kwargs))
        if self._integers:
            check_integers(returned[0], self._space)
        return returned

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        returned = checked_step(self.env.step(action))
        if self._integers:
            check_integers(returned[0], self._space)
        return returned


def _kept(info: Any) -> Info:
    if not info and isinstance(info, dict):
        return info
    if not isinstance(info, Mapping):
        raise WrongValue(f"must return info as a dict, got {_describe(info)}")
    return {MASK_KEY: info[MASK_KEY]} if MASK_KEY in info else {}


def _number(reward: Any) -> float:
    """Converts a reward to a float. Accepts an array of one element."""
    try:
        item = _item(reward)
        if not isinstance(item, str | bytes):
            return float(item)
    except (TypeError, ValueError):
        pass
    raise WrongValue(f"must return a reward that is a float, got {_describe(reward)}")


def _flag(name: str, value: Any) -> bool:
    """Converts a flag to a bool. Accepts 0, 1 and an array of one element."""
    flag = _item(value)
    if isinstance(flag, int | float) and flag in (0, 1):
        return bool(flag)
    raise WrongValue(f"must return {name} as a bool, got {_describe(value)}")


def _item(value: Any) -> Any:
    """Returns the element of an array or tensor of one element, and everything else unchanged."""
    try:
        return value.item()
    except (AttributeError, RuntimeError, TypeError, ValueError):
        return value


def _describe(value: Any) -> str:
    if value is None:
        return "None"
    if isinstance(value, str | bytes):
        return "text"
    if isinstance(value, int | float):
        return repr(value)
    shape = shape_of(value)
    if shape == ():
        return type(value).__qualname__
    got = "lists of different lengths" if shape is None else f"shape {shape}"
    return f"an array of {got}" if isinstance(value, np.ndarray) else got
