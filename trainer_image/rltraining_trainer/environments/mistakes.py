"""Mistakes of environments that gymnasium notices late, and tells in words of its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from gymnasium import spaces

from rltraining_trainer.errors import TrainerError, UserCodeError, user_code_error
from rltraining_trainer.user_trace import user_trace

RETURNS = {
    "reset": "(observation, info)",
    "step": "(observation, reward, terminated, truncated, info)",
}


class WrongObservation(ValueError):
    """An observation is not of the shape that its space says."""

    def __init__(self, observation: Any, space: spaces.Space) -> None:
        super().__init__(
            f"must return an observation of shape {space.shape}, as its observation space says, not {_told(observation)}"
        )


def environment_error(
    name: str, method: str, error: BaseException, space: spaces.Space, observations: Iterable[Any] = ()
) -> TrainerError:
    """``error``, raised by ``method`` of environment ``name``, as one of ours: what was wrong, and the user's traceback.

    Args:
        space: of one observation.
        observations: what the environments may have returned before something failed.
    """
    rule = mistake(space, method, error, observations)
    what = f"environment {name!r}: {method}"
    return UserCodeError(f"{what} {rule}") if rule else user_code_error(what, error)


def not_finite(name: str, what: str) -> str:
    """That environment ``name`` gave ``what``, "an observation" or "a reward", that cannot be learnt from."""
    return f"environment {name!r} gave {what} that is NaN or infinite"


def mistake(
    space: spaces.Space, method: str, error: BaseException, observations: Iterable[Any] = ()
) -> str | None:
    """What was wrong with what an environment returned from ``reset`` or ``step``, as a clause; None if that was right."""
    if isinstance(error, WrongObservation):
        return str(error)
    if not isinstance(error, ValueError | TypeError) or user_trace(error)[0]:
        return None  # another error, or one that their own code raised
    if "unpack" in str(error):
        return f"must return {RETURNS[method]}"
    for observation in observations:
        if space.shape is not None and shape_of(observation) != space.shape:
            return str(WrongObservation(observation, space))
    return None


def _told(observation: Any) -> str:
    if observation is None:
        return "None"
    shape = shape_of(observation)
    return "lists of different lengths" if shape is None else f"one of shape {shape}"


def shape_of(observation: Any) -> tuple[int, ...] | None:
    """Of what should be one array; None of nested lists of different lengths."""
    try:
        return np.shape(observation)
    except ValueError:
        return None
