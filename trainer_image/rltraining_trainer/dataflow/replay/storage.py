"""Storage of the items of a replay: preallocated columns over a ring of slots."""

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
"""Maximum bytes per item of columns that are stored together."""


class Column(NamedTuple):
    """Shape and type of one field of an item."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        """Bytes per item."""
        return math.prod(self.shape) * self.dtype.itemsize


class Ring:
    """Assigns items to slots, first in, first out.

    The version of a slot is the number of the insertion that filled it, counted from 0 over all
    restarts. Insertion v is in slot v mod capacity. The versions in use are therefore those in
    [evicted, inserted), and need not be stored.
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
        """Returns all slots in use, oldest first."""
        return self.slots(self.evicted, self.size)

    def slots(self, first: int, count: int) -> Slots:
        """Returns the slots of the versions [first, first + count)."""
        return np.arange(first, first + count) % self.capacity

    def versions(self, slots: Slots) -> Slots:
        """Returns the versions of slots in use."""
        # Slots before the next one were filled in this lap of the ring.
        next_slot = self.inserted % self.capacity
        return slots + (self.inserted - next_slot) - self.capacity * (slots >= next_slot)

    def holds(self, slots: Slots, versions: Slots) -> NDArray[np.bool_]:
        """Returns for each slot whether it contains the version."""
        held = (versions >= self.evicted) & (versions < self.inserted)
        return held & (versions % self.capacity == slots)

    def ranges(self, first: int, count: int) -> Iterator[tuple[slice, slice]]:
        """Yields the slots of versions as one or two slices, with their offsets from `first`."""
        start = first % self.capacity
        head = min(count, self.capacity - start)
        yield slice(start, start + head), slice(0, head)
        if count > head:
            yield slice(0, count - head), slice(head, count)


class Store(Protocol):
    """Stores some columns of the items in a ring."""

    def put(self, first: int, items: Mapping[str, Tensor]) -> None:
        """Stores columns ``[K, ...]``, K <= capacity, as the versions from `first` on."""

    def drop(self, first: int, count: int) -> None:
        """Frees the versions [first, first + count)."""

    def take(self, slots: Slots) -> Items:
        """Returns copies ``[k, ...]``."""

    def get_state(self) -> dict[str, Any]:
        """Returns a copy of the state, oldest item first."""

    def set_state(self, state: dict[str, Any]) -> None:
        """Replaces the state. The ring must have been restored before."""

    def check_valid(self) -> None: ...


class Columns:
    """Preallocated numpy arrays. Pages that have not been written yet take no memory.

    Small columns are stored together as records, because sampling is limited by memory latency: one
    access loads all of them.
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
    """Raises ValueError unless `items` have exactly these columns and `count` rows."""
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
