"""Where the items of a replay memory lie: preallocated columns over a ring of slots."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Slots = NDArray[np.int64]
Items = dict[str, Tensor]

SMALL_BYTES = 256
"""Columns of at most so many bytes an item lie together."""


class Column(NamedTuple):
    """One part of an item: what each item has of it."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        """Of one item."""
        return math.prod(self.shape) * self.dtype.itemsize


class Ring:
    """Which slots are in use: first in, first out.

    The version of a slot is the number of the insertion that filled it, counted from 0 and never again from the beginning;
    insertion v lies in slot v mod capacity. So the versions held are those in [evicted, inserted), and none need be kept.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"the capacity of a replay must be at least 1, not {capacity}")
        self.capacity = capacity
        self.inserted = 0
        self.evicted = 0

    @property
    def size(self) -> int:
        return self.inserted - self.evicted

    def held(self) -> Slots:
        """All slots in use, oldest first."""
        return self.slots(self.evicted, self.size)

    def slots(self, first: int, count: int) -> Slots:
        """Of the versions [first, first + count)."""
        return np.arange(first, first + count) % self.capacity

    def versions(self, slots: Slots) -> Slots:
        """Of slots in use."""
        next_slot = (
            self.inserted % self.capacity
        )  # the slots before it belong to this lap, the others to the last
        return slots + (self.inserted - next_slot) - self.capacity * (slots >= next_slot)

    def holds(self, slots: Slots, versions: Slots) -> NDArray[np.bool_]:
        """Whether these versions are held, in these slots."""
        held = (versions >= self.evicted) & (versions < self.inserted)
        return held & (versions % self.capacity == slots)

    def ranges(self, first: int, count: int) -> Iterator[tuple[slice, slice]]:
        """The slots of the versions [first, first + count) in one or two slices, each with the slice of versions - first."""
        start = first % self.capacity
        head = min(count, self.capacity - start)
        yield slice(start, start + head), slice(0, head)
        if count > head:
            yield slice(0, count - head), slice(head, count)


class Store(Protocol):
    """Some columns of the items in a ring."""

    def put(self, first: int, items: Mapping[str, Tensor]) -> None:
        """Keep `items`, each [K, ...] with K <= capacity, as the versions from `first` on; their slots are not in use."""

    def drop(self, first: int, count: int) -> None:
        """The versions [first, first + count) are gone."""

    def take(self, slots: Slots) -> Items:
        """Copies, each [k, ...]."""

    def get_state(self) -> dict[str, Any]:
        """Copies of what is held, oldest first."""

    def set_state(self, state: dict[str, Any]) -> None:
        """Hold that instead; the ring already says where."""

    def check_valid(self) -> None: ...


class Columns:
    """Preallocated arrays, of the types that numpy knows. Pages that no item has reached yet take no memory.

    Small columns lie together, item after item, since what a draw waits for is the memory: one access brings them all.
    """

    def __init__(self, ring: Ring, columns: Mapping[str, Column]) -> None:
        self._ring = ring
        fields = [(name, _numpy_type(column.dtype), column.shape) for name, column in columns.items()]
        small = [field for field in fields if np.dtype(field[1:]).itemsize <= SMALL_BYTES]
        self._records = np.empty(ring.capacity, np.dtype(small, align=True))
        self._small = [name for name, _, _ in small]
        self._large = {
            name: np.empty((ring.capacity, *shape), dtype)
            for name, dtype, shape in fields
            if name not in self._small
        }

    def put(self, first: int, items: Mapping[str, Tensor]) -> None:
        for name, rows in [*((name, self._records[name]) for name in self._small), *self._large.items()]:
            new = items[name].numpy()
            for slots, part in self._ring.ranges(first, len(new)):
                rows[slots] = new[part]

    def drop(self, first: int, count: int) -> None:
        pass

    def take(self, slots: Slots) -> Items:
        records = self._records.take(slots)
        taken = {name: torch.from_numpy(records[name]) for name in self._small}
        return taken | {name: torch.from_numpy(rows.take(slots, 0)) for name, rows in self._large.items()}

    def get_state(self) -> dict[str, Any]:
        return {name: rows.contiguous() for name, rows in self.take(self._ring.held()).items()}

    def set_state(self, state: dict[str, Any]) -> None:
        self.put(self._ring.evicted, state)

    def check_valid(self) -> None:
        pass


def check_items(columns: Mapping[str, Column], items: Mapping[str, Tensor], count: int) -> None:
    """Raises ValueError, naming the column, unless `items` have just these columns, each of `count` rows."""
    if items.keys() != columns.keys():
        raise ValueError(f"the replay holds {sorted(columns)}, not {sorted(items)}")
    for name, column in columns.items():
        shape, found = (count, *column.shape), items[name]
        if found.dtype != column.dtype or found.shape != shape:
            raise ValueError(
                f"{name} must be {column.dtype} of shape {shape}, not {found.dtype} of shape {tuple(found.shape)}"
            )


def _numpy_type(dtype: torch.dtype) -> np.dtype[Any]:
    return torch.empty(0, dtype=dtype).numpy().dtype
