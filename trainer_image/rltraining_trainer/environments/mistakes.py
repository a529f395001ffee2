"""Mistakes of environments that gymnasium notices late, and tells in words of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv

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


def mistake(environments: VectorEnv, method: str, error: BaseException) -> str | None:
    """What was wrong with what an environment returned from ``reset`` or ``step``, as a clause; None if that was right."""
    if isinstance(error, WrongObservation):
        return str(error)
    if not isinstance(error, ValueError | TypeError) or user_trace(error)[0]:
        return None  # another error, or one that their own code raised
    if "unpack" in str(error):
        return f"must return {RETURNS[method]}"
    space = environments.single_observation_space
    # SyncVectorEnv keeps them until it puts them together, which is where it fails.
    for observation in getattr(environments, "_env_obs", ()):
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
