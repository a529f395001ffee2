"""Checks the numbers that environments return for NaN, infinity and too large values."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from rltraining_trainer.environments.magnitudes import (
    FLOAT32_MAX,
    NORMALIZED_MAX,
    Limits,
    limit_error,
    numbers_in,
    overflow_error,
    reward_error,
)
from rltraining_trainer.environments.mistakes import not_finite
from rltraining_trainer.environments.packed_space import PackedSpace, numbers_of, original_space
from rltraining_trainer.errors import Diverged

SURELY_ACCEPTED = 0.99 * NORMALIZED_MAX**2
"""A sum of squares up to this, rounded to float32, shows that all numbers are within every limit."""


class NumberCheck:
    """Finds the environments of a batch that returned numbers unusable for learning.

    Args:
        space: Space of one observation, as the network receives it.
        name: The environment's name in messages.
        limits: Largest magnitudes.
        always: Whether observations must be finite even without a limit.
    """

    def __init__(self, space: spaces.Space, name: str, limits: Limits, *, always: bool) -> None:
        self._space, self._name, self._limits = space, name, limits
        self._limit = FLOAT32_MAX if limits.observation is None and always else limits.observation
        self._split = space.split if isinstance(space, PackedSpace) else None

    def accepts(self, observation: np.ndarray | None) -> bool:
        """Returns whether no number of observations ``[B, ...]`` is NaN or beyond the limit.

        None is accepted. Takes half a microsecond for a small batch, since it is called in every step.
        """
        if self._limit is None or observation is None:
            return True
        values = observation if self._split is None else self._split(observation)[0]
        if values.dtype.kind != "f":
            return True
        # No number exceeds the root of the sum of squares. Computing it takes half the time of max().
        if np.vdot(values, values) <= SURELY_ACCEPTED:
            return True
        return bool(np.abs(values).max(initial=0.0) <= self._limit)

    def observation_errors(self, observation: np.ndarray, given: Any) -> dict[int, Exception]:
        """Returns the error of each environment whose observation is not accepted.

        Args:
            observation: ``[B, ...]``, as the network receives it.
            given: The same observations, as the environments returned them. None: unknown.
        """
        assert self._limit is not None, "otherwise all observations are accepted"
        values = numbers_of(self._space, observation).reshape(len(observation), -1)
        errors: dict[int, Exception] = {}
        for b in np.flatnonzero(~(np.abs(values) <= self._limit).all(1)).tolist():
            row: Any = observation[b]
            parts = self._space.numbers_in(row) if isinstance(self._space, PackedSpace) else [((), row)]
            # An infinite number may result from the conversion of a finite number.
            overflow = None
            if given is not None and not np.isfinite(values[b]).all():
                overflow = overflow_error(self._name, numbers_in(original_space(self._space), given[b]))
            errors[b] = (
                overflow
                or limit_error(self._name, parts, self._limit)
                or Diverged(not_finite(self._name, "an observation"))
            )
        return errors

    def reward_errors(self, rewards: np.ndarray) -> dict[int, Exception]:
        """Returns an error for each of the rewards ``[N]`` that is NaN or beyond the limit."""
        limit = self._limits.reward
        errors: dict[int, Exception] = {}
        for n in np.flatnonzero(~(np.abs(rewards) <= limit)).tolist():
            too_large = reward_error(self._name, float(rewards[n]), limit)
            errors[n] = too_large or Diverged(not_finite(self._name, "a reward"))
        return errors
