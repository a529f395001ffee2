"""Observations and rewards that are too large to learn from, although they are finite."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from rltraining_api.algorithms import UserAlgorithm
from rltraining_api.environment import Normalize
from rltraining_api.job import JobSpec

from rltraining_trainer.environments.nested_spaces import Path, dotted, items_of
from rltraining_trainer.errors import TooLarge

FLOAT32_MAX = float(np.finfo(np.float32).max)
"""Networks receive float32. Larger numbers become infinite."""
NORMALIZED_MAX = 1e19
"""Largest magnitude of a number that is normalised (``spec.environment.normalize``).

The square of a larger one may exceed float32, the type of the running variance. A single such
number would also make the variance so large that all other observations are normalised to 0 for
the rest of the run. It is therefore an error of the environment, and is not clipped: any bound that
leaves ordinary observations unchanged, such as times in nanoseconds, has the same effect on the
variance.
"""


@dataclass(frozen=True)
class Limits:
    """The largest magnitudes that environments may return. NaN and infinity are beyond every limit.

    Attributes:
        observation: Largest magnitude in an observation. None: observations are checked only if failed
            environments are reset, and then have to be finite in float32.
        reward: Largest magnitude of a reward.
    """

    observation: float | None = FLOAT32_MAX
    reward: float = FLOAT32_MAX

    @classmethod
    def of(cls, spec: JobSpec) -> Limits:
        """Returns the limits of the job's algorithm.

        An algorithm of the user may accept NaN. Rewards that are clipped need no other limit, since
        they are normalised afterwards.
        """
        algorithm = spec.algorithm.parameters
        if isinstance(algorithm, UserAlgorithm):
            return cls(observation=None)
        normalize = spec.environment.normalize or Normalize()
        rewards = normalize.rewards and algorithm.reward_clip is None
        return cls(
            NORMALIZED_MAX if normalize.observations else FLOAT32_MAX,
            NORMALIZED_MAX if rewards else FLOAT32_MAX,
        )


Numbers = Iterable[tuple[Path, np.ndarray]]
"""The arrays of one observation, each with the keys and indices that lead to it."""


def numbers_in(space: spaces.Space, observation: Any, path: Path = ()) -> Iterator[tuple[Path, np.ndarray]]:
    """Yields the arrays of floats in an observation of a space, which may be nested."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for key, part in items_of(space):
            yield from numbers_in(part, observation[key], (*path, key))
    elif space.dtype is not None and np.issubdtype(space.dtype, np.floating):
        yield path, np.asarray(observation, np.float64)


def overflow_error(name: str, numbers: Numbers) -> TooLarge | None:
    """Returns the error for the first finite number that float32 cannot hold, or None."""
    if (where := _first_beyond(numbers, FLOAT32_MAX)) is None:
        return None
    return TooLarge(
        f"environment {name!r} returned an observation with {where}, which is too large for float32 "
        f"(at most {FLOAT32_MAX:.2g}): scale or clip it in the environment"
    )


def limit_error(name: str, numbers: Numbers, limit: float) -> TooLarge | None:
    """Returns the error for the first finite number beyond ±``limit``, or None."""
    if (where := _first_beyond(numbers, limit)) is None:
        return None
    return TooLarge(
        f"environment {name!r} returned an observation with {where}, but environment.normalize needs "
        f"numbers within ±{limit:g}: scale or clip it in the environment"
    )


def reward_error(name: str, reward: float, limit: float) -> TooLarge | None:
    """Returns the error for a finite reward beyond ±``limit``, or None."""
    if not limit < abs(reward) <= FLOAT32_MAX:
        return None
    return TooLarge(
        f"environment {name!r} returned the reward {reward:.4g}, but environment.normalize needs rewards "
        f"within ±{limit:g}: scale or clip it in the environment, or set rewardClip"
    )


def _first_beyond(numbers: Numbers, limit: float) -> str | None:
    """Describes the first finite number beyond ±``limit`` by its value and place."""
    for path, values in numbers:
        beyond = np.argwhere(np.isfinite(values) & (np.abs(values) > limit))
        if len(beyond):
            index = tuple(beyond[0].tolist())
            part = f" of {dotted(path)!r}" if path else ""
            return f"{values[index]:.4g} in element {list(index)}{part}"
    return None
