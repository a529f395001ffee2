"""Packs composite observations and action masks into one array per observation.

Unrolls, the replay buffer and the transport then only handle a Box. The network unpacks the rows
again (``networks.unpack``).

A row holds float32 numbers followed by bytes. Vectors and discrete parts (as indices) are stored as
numbers, uint8 images as bytes. A row without images is a float32 array. With images it is a uint8
array in which each number takes four bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from rltraining_trainer.environments.mistakes import WrongObservation
from rltraining_trainer.environments.nested_spaces import (
    LARGE,
    LeafSpace,
    Path,
    dotted,
    is_vector,
)

MASK_KEY = "action_mask"
"""Key of the mask of valid actions, in infos or in a Dict of observations."""
BYTES_MIN = 64
"""Minimum size of a uint8 vector that is stored as bytes."""
NUMBER_BYTES = 4


@dataclass(frozen=True)
class Part:
    """Describes one array of an observation and its position in a row.

    Attributes:
        path: Keys and indices that lead to the array. Empty if the observation is a single array.
        space: Space of the array.
        start: Offset of the array among the row's numbers or among its bytes, in elements.
        is_bytes: Whether the array is stored as uint8 instead of float32.
        is_mask: Whether the array is the mask of valid actions.
    """

    path: Path
    space: LeafSpace
    start: int
    is_bytes: bool
    is_mask: bool

    @property
    def name(self) -> str:
        """Name of the part in messages and exported programs, such as ``observation.image``."""
        if self.is_mask and not self.path:
            return MASK_KEY
        return dotted(("observation", *self.path))

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.space.shape or ())

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape))

    def of(self, observation: Any) -> Any:
        """Returns this part of ``observation``. Raises WrongObservation if it is missing."""
        for key in self.path:
            try:
                observation = observation[key]
            except (KeyError, IndexError, TypeError) as error:
                raise WrongObservation(
                    f"must return observations with {_quoted(self)} to match its observation space"
                ) from error
        return observation


class PackedSpace(spaces.Box):
    """The space of packed observations, optionally with a mask of valid actions.

    Attributes:
        original: Space of the observations before packing.
        parts: Arrays of an observation in the order of ``original``. A mask from infos comes last.
        choices: Number of choices of each discrete factor of an action, or empty without a mask. A
            mask has ``sum(choices)`` entries.
        mask_from_info: Whether the mask is ``info["action_mask"]`` instead of an observation's
            part.
        numbers: Number of float32 values in a row.
        vector_size: Number of these values that belong to vectors of floats. They are the first numbers.
        has_bytes: Whether rows hold bytes after the numbers.
    """

    def __init__(
        self,
        original: spaces.Space,
        leaves: Sequence[tuple[Path, LeafSpace]],
        choices: Sequence[int] = (),
        mask_path: Path | None = None,
    ) -> None:
        """Lays out the rows.

        Args:
            original: Space of the observations before packing.
            leaves: Paths and spaces of the arrays to pack.
            choices: Number of choices of each discrete factor of an action.
            mask_path: Path of the mask among ``leaves``, ``()`` for a mask from infos, None
                without a mask.
        """
        self.original, self.choices = original, tuple(choices)
        self.mask_from_info = mask_path == ()
        # Find the mask. A mask from infos is appended as a further array.
        if self.mask_from_info:  # the path of an observation that is a single array is also ()
            is_mask = [*[False] * len(leaves), True]
            leaves = [*leaves, ((), spaces.MultiBinary(sum(choices)))]
        else:
            is_mask = [path == mask_path for path, _ in leaves]
        # Images are stored as bytes. In rows with images, the mask is stored as bytes, too.
        has_bytes = any(_is_bytes(space) for _, space in leaves)
        kept_as_bytes = [
            _is_bytes(space) or (masks and has_bytes)
            for (_, space), masks in zip(leaves, is_mask, strict=True)
        ]

        # Assign offsets. Vectors of floats come first, so that they can be normalised together.
        order = sorted(range(len(leaves)), key=lambda i: (kept_as_bytes[i], not is_vector(leaves[i][1])))
        numbers, end = 0, 0
        starts = [0] * len(leaves)
        for i in order:
            size = int(np.prod(leaves[i][1].shape or ()))
            if kept_as_bytes[i]:
                starts[i], end = end, end + size
            else:
                starts[i], numbers = numbers, numbers + size
        self.numbers = numbers
        self.vector_size = sum(int(np.prod(space.shape or ())) for _, space in leaves if is_vector(space))
        self.parts = tuple(
            Part(path, space, start, as_bytes, masks)
            for (path, space), start, as_bytes, masks in zip(
                leaves, starts, kept_as_bytes, is_mask, strict=True
            )
        )
        if has_bytes:
            # Pad rows to a multiple of four bytes, which aligns them for float32.
            width = NUMBER_BYTES * (numbers + -(-end // NUMBER_BYTES))
            super().__init__(0, 255, (width,), np.uint8)
        else:
            super().__init__(-np.inf, np.inf, (numbers,), np.float32)
        self.has_bytes = has_bytes

    @property
    def mask(self) -> Part | None:
        """The mask of valid actions, or None."""
        return next((part for part in self.parts if part.is_mask), None)

    def sample(self, *_: Any, **__: Any) -> np.ndarray:
        """Returns a random packed observation with at least one valid choice for each factor."""
        return self.pack_values([self._sample_part(part)[np.newaxis] for part in self.parts], 1)[0]

    def contains(self, x: Any) -> bool:
        return isinstance(x, np.ndarray) and x.shape == self.shape and x.dtype == self.dtype

    def seed(self, seed: Any = None) -> Any:
        """Seeds this space and the spaces of its parts."""
        for i, part in enumerate(self.parts):
            part.space.seed(None if seed is None else int(seed) + i)
        return super().seed(seed)

    def pack(self, observation: Any, batch: int, mask: np.ndarray | None = None) -> np.ndarray:
        """Packs a batch of observations into rows ``[B, P]``.

        Args:
            observation: Structured like ``original``, with arrays ``[B, ...]``.
            batch: B.
            mask: ``[B, sum(choices)]``, required if ``mask_from_info``.

        Raises:
            WrongObservation: A part is missing or has the wrong shape.
        """
        return self.pack_values([self._values(part, observation, batch, mask) for part in self.parts], batch)

    def pack_values(self, values: Sequence[np.ndarray], batch: int) -> np.ndarray:
        """Packs arrays ``[B, ...]``, one for each of ``parts``, into rows ``[B, P]``."""
        rows = np.zeros((batch, *self.shape), self.dtype)
        numbers, data = self.split(rows)
        # Numbers that float32 cannot hold become infinite, which the ``Stepper`` reports.
        with np.errstate(over="ignore"):
            for part, value in zip(self.parts, values, strict=True):
                target = data if part.is_bytes else numbers
                target[:, part.start : part.start + part.size] = value.reshape(batch, -1)
        return rows

    def split(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns views of rows ``[..., P]``: float32 ``[..., F]`` and uint8 ``[..., N]``."""
        if not self.has_bytes:
            return rows, np.empty((*rows.shape[:-1], 0), np.uint8)
        cut = NUMBER_BYTES * self.numbers
        return rows[..., :cut].view(np.float32), rows[..., cut:]

    def part_of(self, rows: np.ndarray, part: Part) -> np.ndarray:
        """Returns a view ``[B, size]`` of ``part`` in rows ``[B, P]``."""
        numbers, data = self.split(rows)
        return (data if part.is_bytes else numbers)[:, part.start : part.start + part.size]

    def numbers_in(self, row: np.ndarray) -> Iterator[tuple[Path, np.ndarray]]:
        """Yields the path and the numbers of each part of a row ``[P]`` that is not stored as bytes."""
        for part in self.parts:
            if not part.is_bytes:
                yield part.path, self.part_of(row[np.newaxis], part).reshape(part.shape)

    def _values(self, part: Part, observation: Any, batch: int, mask: np.ndarray | None) -> np.ndarray:
        if part.is_mask and self.mask_from_info:
            assert mask is not None
            return mask
        array = np.asarray(part.of(observation))
        if array.shape != (batch, *part.shape):
            raise WrongObservation(
                f"must return an observation in which {_quoted(part)} has shape {part.shape} to match "
                f"its observation space, got {array.shape[1:]}"
            )
        return array

    def _sample_part(self, part: Part) -> np.ndarray:
        if part.is_mask:
            valid = np.concatenate([_some_of(count, self.np_random) for count in self.choices])
            return valid.reshape(part.shape)
        sample = np.asarray(part.space.sample())
        if sample.dtype.kind == "f":
            normal = self.np_random.standard_normal(sample.shape).astype(np.float32)
            sample = np.where(np.abs(sample) > LARGE, normal, sample)
        return sample


def original_space(space: spaces.Space) -> spaces.Space:
    """Returns the space of observations before packing."""
    return space.original if isinstance(space, PackedSpace) else space


def numbers_of(space: spaces.Space, observation: np.ndarray) -> np.ndarray:
    """Returns the values that may be NaN: the numbers of packed rows, or all observations."""
    return space.split(observation)[0] if isinstance(space, PackedSpace) else observation


def _is_bytes(space: spaces.Space) -> bool:
    return (
        isinstance(space, spaces.Box)
        and space.dtype == np.uint8
        and (len(space.shape) > 1 or int(np.prod(space.shape)) >= BYTES_MIN)
    )


def _some_of(count: int, generator: np.random.Generator) -> np.ndarray:
    valid = generator.integers(0, 2, count, np.uint8)
    valid[generator.integers(count)] = 1
    return valid


def _quoted(part: Part) -> str:
    return f"the part {dotted(part.path)!r}"
