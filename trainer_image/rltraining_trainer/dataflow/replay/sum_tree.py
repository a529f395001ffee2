"""A sum tree: weights that change, and draws in proportion to them, both in logarithmic time."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

FANOUT = 16
TOP_MAX = 8192
"""Nodes of the highest level, at most (unless there is but one level): a query sums and searches them as a list."""


class SumTree:
    """`capacity` leaves, in the order of their slots; all begin as 0.

    A node is the sum of its FANOUT children. Level 0 are the leaves; above it come levels until one is short enough to be
    searched as a whole. Each level is padded with zeros to whole families. A node is always summed anew from all of its
    children, never corrected by a difference: so the tree depends on its leaves alone, not on how they came about, and does
    not drift.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"a sum tree needs a capacity of at least 1, not {capacity}")
        self._capacity = capacity
        self._levels = [np.zeros((-(-capacity // FANOUT), FANOUT))]
        while len(self._levels) == 1 or self._levels[-1].size > TOP_MAX:
            families = -(-len(self._levels[-1]) // FANOUT)
            self._levels.append(np.zeros((families, FANOUT)))
        self._bounds = np.zeros(
            self._levels[-1].size + 1
        )  # of the highest level's nodes: node i has [i, i + 1)
        self._bounds_known = True

    @property
    def capacity(self) -> int:
        return self._capacity

    @property
    def leaves(self) -> NDArray[np.float64]:
        """All `capacity` of them, [capacity], read-only."""
        view = self._levels[0].reshape(-1)[: self._capacity]
        view.flags.writeable = False
        return view

    @property
    def root(self) -> float:
        """The sum of all leaves."""
        return float(self._top()[-1])

    def set(self, slots: NDArray[np.int64], values: NDArray[np.float64]) -> None:
        """Leaf `slots[i]` becomes `values[i]`; of those that name the same slot, the last one holds.

        Raises:
            ValueError: a value is negative, infinite or NaN.
            IndexError: there is no such slot.
        """
        if not len(slots):
            return
        if not (values.min() >= 0 and values.max() < np.inf):
            raise ValueError("the leaves of a sum tree must be finite and at least 0")
        if slots.min() < 0 or slots.max() >= self._capacity:
            raise IndexError(f"the slots of this sum tree are 0 to {self._capacity - 1}")
        self._levels[0].reshape(-1)[slots] = values
        nodes = slots
        for children, parents in zip(self._levels, self._levels[1:], strict=False):
            nodes = nodes // FANOUT
            parents.reshape(-1)[nodes] = np.add.reduce(children.take(nodes, 0), 1)
        self._bounds_known = False

    def clear(self) -> None:
        """All leaves become 0."""
        for level in self._levels:
            level.fill(0)
        self._bounds.fill(0)
        self._bounds_known = True

    def query(self, points: NDArray[np.float64]) -> NDArray[np.int64]:
        """For each of `points` in [0, root] the slot i with sum(leaves[:i]) <= point < sum(leaves[:i + 1]).

        A point that rounding has put at the root, or on the far side of a border, gives a neighbour; never a leaf of 0.
        Sorted points are faster.

        Raises:
            ValueError: all leaves are 0.
        """
        bounds = self._top()
        if not bounds[-1] > 0:
            raise ValueError("the sum tree is empty: all leaves are 0")
        points = np.minimum(points, np.nextafter(bounds[-1], 0))
        nodes = bounds.searchsorted(points, "right") - 1
        points = points - bounds.take(nodes)
        for level in self._levels[-2::-1]:
            upper = np.add.accumulate(level.take(nodes, 0), 1)
            # Summed in another order, a family may come out a little smaller than its parent.
            points = np.minimum(points, np.nextafter(upper[:, -1], 0))
            lanes = (upper > points[:, None]).argmax(1)
            lower = upper[np.arange(len(lanes)), lanes - 1]
            points = np.where(lanes > 0, points - lower, points)
            nodes = nodes * FANOUT + lanes
        return nodes

    def get_state(self) -> dict[str, Any]:
        return {"leaves": torch.from_numpy(self.leaves.copy())}

    def set_state(self, state: dict[str, Any]) -> None:
        """Raises ValueError: the state is that of a tree of another capacity."""
        leaves = state["leaves"].numpy()
        if leaves.shape != (self._capacity,):
            raise ValueError(f"a state of {leaves.size} leaves does not fit a sum tree of {self._capacity}")
        self.clear()
        self.set(np.arange(self._capacity), leaves)

    def check_valid(self) -> None:
        """Raises AssertionError, saying which, if an invariant does not hold."""
        leaves = self._levels[0].reshape(-1)
        assert np.isfinite(leaves).all(), "a leaf is not finite"
        assert (leaves >= 0).all(), "a leaf is negative"
        assert not leaves[self._capacity :].any(), "a leaf beyond the capacity is not 0"
        for number, (children, parents) in enumerate(zip(self._levels, self._levels[1:], strict=False), 1):
            sums = np.add.reduce(children, 1)
            nodes = parents.reshape(-1)
            assert np.array_equal(nodes[: len(sums)], sums), (
                f"a node of level {number} is not its children's sum"
            )
            assert not nodes[len(sums) :].any(), f"a node beyond level {number} is not 0"
        assert np.isclose(self.root, leaves.sum(), rtol=1e-9), "the root is not the sum of the leaves"

    def _top(self) -> NDArray[np.float64]:
        if not self._bounds_known:
            np.add.accumulate(self._levels[-1].reshape(-1), out=self._bounds[1:])
            self._bounds_known = True
        return self._bounds
