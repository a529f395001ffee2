"""A sum tree: updates weights, and samples in proportion to them, in logarithmic time."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rltraining_trainer.dataflow.replay.storage import Slots

Floats = NDArray[np.float64]


def load_kernel() -> ctypes.PyDLL | None:
    """Loads sum_tree.c, which hatch_build.py compiles if there is a compiler. Returns None if the kernel
    was not compiled.

    The GIL is held during a call, because releasing and acquiring it would take longer.
    """
    try:
        library = ctypes.PyDLL(str(Path(__file__).with_name("libsum_tree.so")))
    except OSError:
        return None
    pointer, integer = ctypes.c_void_p, ctypes.c_int64
    library.set.argtypes = [pointer, integer, integer, integer, pointer, pointer, pointer]
    library.set.restype = ctypes.c_bool
    library.query.argtypes = [pointer, integer, integer, pointer, pointer]
    library.query.restype = None
    return library


KERNEL = load_kernel()


class SumTree:
    """A tree with `capacity` leaves, which are initially 0.

    The tree is a heap of 2 * width numbers, where width is the capacity rounded up to a power of
    two. Node 1 is the root, node i is the sum of the nodes 2i and 2i + 1, and the leaf of slot s is
    node width + s. Leaves beyond the capacity stay 0.

    Nodes are computed from their children and never corrected by differences. The tree is therefore
    a function of its leaves and does not drift.

    The compiled `kernel` gives bitwise the same results several times as fast (tests/bench,
    replay).
    """

    def __init__(self, capacity: int, kernel: ctypes.PyDLL | None = KERNEL) -> None:
        self._capacity = capacity
        self._kernel = kernel
        # Number of levels above the leaves.
        self._levels = (capacity - 1).bit_length()
        self._width = 1 << self._levels
        self._nodes = np.zeros(2 * self._width)
        self._memory = _memory(self._nodes)

    @property
    def leaves(self) -> Floats:
        """The leaves ``[capacity]``. Do not modify them."""
        return self._nodes[self._width : self._width + self._capacity]

    @property
    def root(self) -> float:
        """The sum of all leaves."""
        return float(self._nodes[1])

    def set(self, slots: Slots, values: Floats) -> None:
        """Sets leaf `slots[i]` to `values[i]`, which must be finite and not negative.

        The last value of a repeated slot counts.

        Raises:
            IndexError: A slot does not exist. Nothing is changed.
        """
        slots, values = np.ascontiguousarray(slots, np.int64), np.ascontiguousarray(values, np.float64)
        if slots.shape != values.shape:
            raise ValueError(f"{len(values)} values for {len(slots)} slots")
        if not (self._set_compiled if self._kernel else self._set)(slots, values):
            raise IndexError(f"the slots of this sum tree are 0 to {self._capacity - 1}")

    def query(self, points: Floats) -> Slots:
        """Returns for each point in [0, root] the slot i with sum(leaves[:i]) <= point <
        sum(leaves[:i + 1]).

        A point that is off by a rounding error gives a slot nearby, but never one whose leaf is 0
        unless all are 0. Sorted points are faster.
        """
        # The queries modify their argument.
        points = np.array(points, np.float64)
        return self._query_compiled(points) if self._kernel else self._query(points)

    def clear(self) -> None:
        """Sets all leaves to 0."""
        self._nodes.fill(0)

    def check_valid(self) -> None:
        """Raises AssertionError with the violated invariant."""
        leaves = self._nodes[self._width :]
        assert np.isfinite(leaves).all(), "a leaf is not finite"
        assert (leaves >= 0).all(), "a leaf is negative"
        assert not leaves[self._capacity :].any(), "a leaf beyond the capacity is not 0"
        sums = self._nodes[2::2] + self._nodes[3::2]
        assert np.array_equal(self._nodes[1 : self._width], sums), "a node is not the sum of its children"

    def _set(self, slots: Slots, values: Floats) -> bool:
        """Sets leaves. Returns False if a slot does not exist."""
        if ((slots < 0) | (slots >= self._capacity)).any():
            return False
        tree, nodes = self._nodes, slots + self._width
        tree[nodes] = values
        for _ in range(self._levels):
            nodes >>= 1
            tree[nodes] = tree.take(2 * nodes) + tree.take(2 * nodes + 1)
        return True

    def _query(self, points: Floats) -> Slots:
        tree, nodes = self._nodes, np.ones(len(points), np.int64)
        for _ in range(self._levels):
            nodes <<= 1
            left = tree.take(nodes)
            right = (points >= left) & (tree.take(nodes + 1) > 0)
            points -= left * right
            nodes += right
        return nodes - self._width

    def _set_compiled(self, slots: Slots, values: Floats) -> bool:
        assert self._kernel
        scratch = np.empty_like(slots)
        known: bool = self._kernel.set(
            self._memory,
            self._width,
            self._capacity,
            len(slots),
            *map(_memory, (slots, values, scratch)),
        )
        return known

    def _query_compiled(self, points: Floats) -> Slots:
        assert self._kernel
        slots = np.empty(len(points), np.int64)
        self._kernel.query(self._memory, self._width, len(points), *map(_memory, (points, slots)))
        return slots


_Bytes = ctypes.c_char * 0


def _memory(array: Any) -> ctypes.Array[ctypes.c_char]:
    """Returns the address of a contiguous array, for C."""
    return _Bytes.from_buffer(array)
