"""Observations of several parts, and action masks, as one array.

A Dict or Tuple of observations, nested or not, is packed into one row per observation, so that unrolls, replay memory and
transport only see a Box. The network unpacks the row again (``networks.unpack``).

A row has float32 numbers, then bytes. Vectors, and discrete parts as indexes, are numbers; images of uint8 are bytes. Without
an image the row is an array of float32; with one it is an array of uint8, four of which are one number.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import Any

import numpy as np
from gymnasium import spaces

from rltraining_trainer.environments.mistakes import WrongObservation
from rltraining_trainer.errors import BadConfiguration

MASK_KEY = "action_mask"
"""Of infos, or of a Dict of observations: which actions are valid."""
LARGE = 1e6
"""Bounds beyond this are there for form: nothing of that size is computed well, or meant."""
BYTES_MIN = 64
"""A vector of uint8 of at least this size is kept as bytes."""
NUMBER_BYTES = 4

Path = tuple[str | int, ...]
LeafSpace = spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary


@dataclass(frozen=True)
class Part:
    """One array of an observation.

    Attributes:
        path: keys and positions that lead to it in the observation; ``()``: the observation is one array.
        space: of the array.
        start: where it begins, counted in its own type: numbers from the row's first number, bytes from its first byte.
        is_bytes: it is kept as uint8; else as float32.
        is_mask: it says which actions are valid.
    """

    path: Path
    space: LeafSpace
    start: int
    is_bytes: bool
    is_mask: bool

    @property
    def name(self) -> str:
        """Of the part in messages and in exported programs: ``observation.image``."""
        if self.is_mask and not self.path:
            return MASK_KEY
        return ".".join(("observation", *map(str, self.path)))

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.space.shape or ())

    @property
    def size(self) -> int:
        """How many elements it has."""
        return int(np.prod(self.shape))

    def of(self, observation: Any) -> Any:
        """The part of an observation. Raises WrongPart if there is none."""
        for key in self.path:
            try:
                observation = observation[key]
            except (KeyError, IndexError, TypeError) as error:
                raise WrongPart(
                    f"must return an observation with {_quoted(self)}, as its observation space says"
                ) from error
        return observation


class WrongPart(WrongObservation):
    """An observation lacks a part, or a part has another shape than its space; or no action is valid."""

    def __init__(self, clause: str) -> None:
        """``clause``: what the environment must do."""
        ValueError.__init__(self, clause)


class PackedSpace(spaces.Box):
    """Rows that hold all parts of an observation, and perhaps a mask of its valid actions.

    Attributes:
        original: the space of the observations that are packed.
        parts: the arrays of an observation, in the order of ``original``; a mask from infos is last.
        choices: of each discrete factor of an action, how many choices it has: what a mask is made of. Empty without one.
        mask_from_info: the mask is ``info["action_mask"]``, not a part of the observation.
    """

    def __init__(
        self,
        original: spaces.Space,
        leaves: Sequence[tuple[Path, LeafSpace]],
        choices: Sequence[int] = (),
        mask_path: Path | None = None,
    ) -> None:
        """``leaves``: what is packed of ``original``; ``mask_path``: which of them is the mask, ``()`` if it is an info."""
        self.original, self.choices = original, tuple(choices)
        self.mask_from_info = mask_path == ()
        if self.mask_from_info:
            leaves = [*leaves, ((), spaces.MultiBinary(sum(choices)))]
        is_mask = [path == mask_path and mask_path is not None for path, _ in leaves]
        if self.mask_from_info:  # an observation that is one array has the path () too
            is_mask = [False] * (len(leaves) - 1) + [True]
        has_bytes = any(_is_bytes(space) for _, space in leaves)
        kept_as_bytes = [
            _is_bytes(space) or (masks and has_bytes)
            for (_, space), masks in zip(leaves, is_mask, strict=True)
        ]

        # Vectors of floats come first: they are what can be normalised.
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
            # Whole numbers of four bytes: each row of a batch can be read as numbers.
            width = NUMBER_BYTES * (numbers + -(-end // NUMBER_BYTES))
            super().__init__(0, 255, (width,), np.uint8)
        else:
            super().__init__(-np.inf, np.inf, (numbers,), np.float32)
        self.has_bytes = has_bytes

    @property
    def mask(self) -> Part | None:
        """The part that says which actions are valid."""
        return next((part for part in self.parts if part.is_mask), None)

    def sample(self, *_: Any, **__: Any) -> np.ndarray:
        """A packed random observation, in which some actions of each factor are valid."""
        row: np.ndarray = self.pack_values([self._sample_part(part)[np.newaxis] for part in self.parts], 1)[0]
        return row

    def contains(self, x: Any) -> bool:
        return isinstance(x, np.ndarray) and x.shape == self.shape and x.dtype == self.dtype

    def seed(self, seed: Any = None) -> Any:
        """Seeds the space and the parts that it samples."""
        for i, part in enumerate(self.parts):
            part.space.seed(None if seed is None else int(seed) + i)
        return super().seed(seed)

    def pack(self, observation: Any, batch: int, mask: np.ndarray | None = None) -> np.ndarray:
        """Rows ``[B, P]`` of a batch of observations, in the structure of ``original`` with arrays ``[B, ...]``.

        Args:
            mask: ``[B, sum(choices)]``, for ``mask_from_info``.

        Raises:
            WrongPart: a part is missing or has another shape.
        """
        return self.pack_values([self._values(part, observation, batch, mask) for part in self.parts], batch)

    def pack_values(self, values: Sequence[np.ndarray], batch: int) -> np.ndarray:
        """Rows ``[B, P]`` of the parts' arrays ``[B, ...]``, in their order."""
        rows = np.zeros((batch, *self.shape), self.dtype)
        numbers, data = self.split(rows)
        for part, value in zip(self.parts, values, strict=True):
            target = data if part.is_bytes else numbers
            target[:, part.start : part.start + part.size] = value.reshape(batch, -1)
        return rows

    def split(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(numbers ``[..., F]`` float32, bytes ``[..., N]`` uint8) of rows ``[..., P]``, on the same memory."""
        if not self.has_bytes:
            return rows, np.empty((*rows.shape[:-1], 0), np.uint8)
        cut = NUMBER_BYTES * self.numbers
        return rows[..., :cut].view(np.float32), rows[..., cut:]

    def part_of(self, rows: np.ndarray, part: Part) -> np.ndarray:
        """``part`` of rows ``[B, P]``: a view ``[B, size]``."""
        numbers, data = self.split(rows)
        return (data if part.is_bytes else numbers)[:, part.start : part.start + part.size]

    def _values(self, part: Part, observation: Any, batch: int, mask: np.ndarray | None) -> np.ndarray:
        if part.is_mask and self.mask_from_info:
            assert mask is not None
            return mask
        array = np.asarray(part.of(observation))
        if array.shape != (batch, *part.shape):
            raise WrongPart(
                f"must return an observation in which {_quoted(part)} has the shape {part.shape}, as its observation space "
                f"says, not {array.shape[1:]}"
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


def pack_space(
    space: spaces.Space, action_space: spaces.Space, *, mask_in_info: bool = False
) -> tuple[spaces.Space, tuple[str, ...]]:
    """(the space of packed observations, or ``space`` itself if it is one array without a mask; the names of text parts, which
    are left out).

    Raises:
        BadConfiguration: a part is of a kind that no network takes, or a mask does not fit the actions.
    """
    choices = discrete_choices(action_space)
    composite = isinstance(space, spaces.Dict | spaces.Tuple)
    if not composite and not mask_in_info:
        return space, ()
    kept, left_out = without_text(space)
    leaves = [*_leaves(kept)]
    if not leaves:
        raise BadConfiguration(
            f"spec.environment: observations of {shown(space)} have no part that is an array of numbers"
        )
    mask_path: Path | None = () if mask_in_info else None
    if isinstance(kept, spaces.Dict) and MASK_KEY in kept.spaces and choices:
        mask_path = (MASK_KEY,)
        size = int(np.prod(kept[MASK_KEY].shape or ()))
        if size != sum(choices):
            raise BadConfiguration(
                f"spec.environment: the part {MASK_KEY!r} of observations has {size} entries, but the actions of "
                f"{shown(action_space)} have {sum(choices)} choices; make them one each"
            )
        if len(leaves) == 1:
            raise BadConfiguration(
                f"spec.environment: observations of {shown(space)} have no part but the mask of actions"
            )
    return PackedSpace(kept, leaves, choices if mask_path is not None else (), mask_path), left_out


def discrete_choices(action_space: spaces.Space) -> tuple[int, ...]:
    """Of each discrete factor of an action, in order, how many choices it has."""
    if isinstance(action_space, spaces.Discrete):
        return (int(action_space.n),)
    if isinstance(action_space, spaces.MultiDiscrete):
        return tuple(int(n) for n in action_space.nvec.reshape(-1))
    if isinstance(action_space, spaces.MultiBinary):
        return (2,) * int(np.prod(action_space.shape))
    if isinstance(action_space, spaces.Dict | spaces.Tuple):
        return tuple(n for _, part in items_of(action_space) for n in discrete_choices(part))
    return ()


def items_of(space: spaces.Dict | spaces.Tuple) -> Iterator[tuple[str | int, spaces.Space]]:
    """Keys, or positions, and parts."""
    yield from space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)


def without_text(space: spaces.Space, path: Path = ()) -> tuple[spaces.Space, tuple[str, ...]]:
    """(``space`` without its text parts, their names)."""
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return space, ()
    kept: dict[str | int, spaces.Space] = {}
    left_out: list[str] = []
    for key, part in items_of(space):
        if part.dtype is not None and part.dtype.kind == "U":  # Text, and MiniGrid's MissionSpace
            left_out.append(".".join(map(str, (*path, key))))
            continue
        inner, names = without_text(part, (*path, key))
        left_out += names
        kept[key] = inner
    if not left_out:
        return space, ()
    if isinstance(space, spaces.Tuple):
        if len(kept) < len(space.spaces):
            raise BadConfiguration(
                f"spec.environment: observations have the text {left_out[0]!r} in a Tuple, of which no part can be left out; "
                "make the Tuple a Dict, or wrap the environment (environment.wrappers)"
            )
        return spaces.Tuple([*kept.values()]), tuple(left_out)
    return spaces.Dict(OrderedDict((str(key), part) for key, part in kept.items())), tuple(left_out)


def is_vector(space: spaces.Space) -> bool:
    """Whether it is a Box of floats with one axis at most: what running statistics are kept of."""
    return isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating) and len(space.shape) <= 1


def shown(space: spaces.Space) -> str:
    """A space in one line of bearable length: those with many bounds print as paragraphs."""
    return shorten(str(space), 160, placeholder=" ...")


def original_space(space: spaces.Space) -> spaces.Space:
    """The space of observations as environments give them."""
    return space.original if isinstance(space, PackedSpace) else space


def numbers_of(space: spaces.Space, observation: np.ndarray) -> np.ndarray:
    """What may be NaN in observations ``[B, ...]``: of packed ones their numbers."""
    return space.split(observation)[0] if isinstance(space, PackedSpace) else observation


def first_of(batch: Any) -> Any:
    """The first element of a batch in the structure of a Dict or Tuple."""
    if isinstance(batch, Mapping):
        return {key: first_of(part) for key, part in batch.items()}
    if isinstance(batch, tuple):
        return tuple(first_of(part) for part in batch)
    return batch[0]


def batch_of_one(observation: Any) -> Any:
    """An observation in the structure of a Dict or Tuple as a batch of one: each part ``[1, ...]``."""
    if isinstance(observation, Mapping):
        return {key: batch_of_one(part) for key, part in observation.items()}
    if isinstance(observation, tuple):
        return tuple(batch_of_one(part) for part in observation)
    return np.asarray(observation)[np.newaxis]


def _leaves(space: spaces.Space, path: Path = ()) -> Iterator[tuple[Path, LeafSpace]]:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for key, part in items_of(space):
            yield from _leaves(part, (*path, key))
        return
    if isinstance(space, LeafSpace) and space.dtype is not None and space.dtype.kind in "biuf":
        yield path, space
        return
    name = ".".join(map(str, path))
    keep = "{name: FilterObservation, kwargs: {filter_keys: [...]}}"
    raise BadConfiguration(
        f"spec.environment: the part {name!r} of observations, {shown(space)}, is no array of numbers; leave it out with "
        f"environment.wrappers: [{keep}]"
    )


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
    return f"the part {'.'.join(map(str, part.path))!r}"
