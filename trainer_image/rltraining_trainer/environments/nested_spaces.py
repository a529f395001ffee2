"""Functions over gymnasium spaces, and over values in the structure of a Dict or Tuple."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from textwrap import shorten
from typing import Any

import numpy as np
from gymnasium import spaces

Path = tuple[str | int, ...]
"""Keys and indices that lead to a part of a nested space."""
LeafSpace = spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary
LARGE = 1e6
"""Bounds beyond this are treated as absent: values of that size would not be usable in float32."""


def items_of(space: spaces.Dict | spaces.Tuple) -> Iterator[tuple[str | int, spaces.Space]]:
    """Yields the key (Dict) or index (Tuple) and the space of each part."""
    yield from space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)


def dotted(path: Path) -> str:
    """Returns the name of a part, such as ``camera.image``."""
    return ".".join(map(str, path))


def discrete_choices(action_space: spaces.Space) -> tuple[int, ...]:
    """Returns the number of choices of each discrete factor of an action, in order."""
    if isinstance(action_space, spaces.Discrete):
        return (int(action_space.n),)
    if isinstance(action_space, spaces.MultiDiscrete):
        return tuple(int(n) for n in action_space.nvec.reshape(-1))
    if isinstance(action_space, spaces.MultiBinary):
        return (2,) * int(np.prod(action_space.shape))
    if isinstance(action_space, spaces.Dict | spaces.Tuple):
        return tuple(n for _, part in items_of(action_space) for n in discrete_choices(part))
    return ()


def is_vector(space: spaces.Space) -> bool:
    """Returns whether ``space`` is a float Box with at most one axis, which can be normalised."""
    return isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating) and len(space.shape) <= 1


def shown(space: spaces.Space) -> str:
    """Formats a space for a message, shortened if it has many bounds."""
    return shorten(str(space), 160, placeholder=" ...")


def first_of(batch: Any) -> Any:
    """Returns the first element of a batch of (possibly nested) observations or actions."""
    if isinstance(batch, Mapping):
        return {key: first_of(part) for key, part in batch.items()}
    if isinstance(batch, tuple):
        return tuple(first_of(part) for part in batch)
    return batch[0]


def batch_of_one(observation: Any) -> Any:
    """Returns a (possibly nested) observation as a batch of one, with arrays ``[1, ...]``."""
    if isinstance(observation, Mapping):
        return {key: batch_of_one(part) for key, part in observation.items()}
    if isinstance(observation, tuple):
        return tuple(batch_of_one(part) for part in observation)
    return np.asarray(observation)[np.newaxis]
