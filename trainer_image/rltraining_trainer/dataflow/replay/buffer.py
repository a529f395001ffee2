"""The replay buffer of one process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rltraining_trainer.dataflow.replay.distributions import Distribution, Prioritized, Uniform
from rltraining_trainer.dataflow.replay.frames import STACKED, FrameStacks
from rltraining_trainer.dataflow.replay.storage import Column, Columns, Ring, Store, check_items


@dataclass(frozen=True)
class SampleResult:
    """k items, sampled with replacement."""

    items: dict[str, Tensor]
    """Copies ``[k, ...]``. Small columns share memory, so they are not contiguous."""
    slots: Tensor
    """int64 ``[k]``."""
    versions: Tensor
    """int64 ``[k]``: number of the insertion that filled the slot."""
    probabilities: Tensor
    """float64 ``[k]``: probability in this buffer at the time of sampling."""
    ages: Tensor
    """int64 ``[k]``: insertions since the item was added."""


class PriorityUpdateResult(NamedTuple):
    """How many priorities of an update were applied."""

    applied: int
    stale: int
    """Priorities of items that had been evicted."""


class ReplayCounts(NamedTuple):
    """Items since the buffer was created. Invariant: inserted = evicted + size."""

    inserted: int
    evicted: int
    sampled: int
    applied: int
    stale: int


class ReplayBuffer:
    """A FIFO ring of `capacity` items. Not thread-safe.

    Prioritized sampling draws item i with probability p_i^α / Σ p^α (Schaul et al. 2016, arXiv
    1511.05952, equation 1). The buffer adds nothing to priorities, so an item with priority 0 is
    never drawn. Uniform sampling ignores priorities.

    With `frame_stack` > 1 the columns `observation` and `next_observation` must be
    ``[frame_stack, ...]``, and each distinct frame is stored once. See FrameStacks.

    Raises:
        ValueError: The capacity is below 1, or columns are not stacks of `frame_stack` frames.
    """

    def __init__(
        self,
        capacity: int,
        columns: Mapping[str, Column],
        *,
        kind: Literal["Prioritized", "Uniform"],
        priority_exponent: float,
        frame_stack: int = 1,
        seed: int,
    ) -> None:
        self._columns = dict(columns)
        self._form = {
            "capacity": capacity,
            "kind": kind,
            "frame_stack": frame_stack,
            "columns": {name: [list(shape), str(dtype)] for name, (shape, dtype) in columns.items()},
        }
        self._ring = Ring(capacity)
        self._distribution: Distribution = (
            Prioritized(self._ring, priority_exponent) if kind == "Prioritized" else Uniform(self._ring)
        )
        self._stores: dict[str, Store] = {}
        if frame_stack > 1:
            # Store the columns of stacked frames.
            stacked = {name: self._columns.get(name) for name in STACKED}
            shape = stacked["observation"]
            if shape is None or stacked["next_observation"] != shape or shape.shape[:1] != (frame_stack,):
                raise ValueError(
                    f"with a frame stack of {frame_stack}, {' and '.join(STACKED)} must be alike, "
                    f"of shape [{frame_stack}, ...]: got {stacked}"
                )
            self._stores["stacks"] = FrameStacks(self._ring, shape, seed)
        # Store all other columns.
        others = {
            name: column for name, column in self._columns.items() if frame_stack == 1 or name not in STACKED
        }
        self._stores["columns"] = Columns(self._ring, others)
        self._random = np.random.Generator(np.random.PCG64(seed))
        self._largest = 1.0
        self._sampled = self._applied = self._stale = 0

    @property
    def capacity(self) -> int:
        return self._ring.capacity

    @property
    def size(self) -> int:
        """Number of items."""
        return self._ring.size

    @property
    def priority_sum(self) -> float:
        """The sum of all powered priorities. With uniform sampling this is the size."""
        return self._distribution.priority_sum

    @property
    def min_priority(self) -> float:
        """The smallest positive powered priority (1 with uniform sampling), or infinity if there is
        none.

        Scans all items.
        """
        return self._distribution.min_priority

    @property
    def counts(self) -> ReplayCounts:
        return ReplayCounts(
            self._ring.inserted, self._ring.evicted, self._sampled, self._applied, self._stale
        )

    def add(self, items: Mapping[str, Tensor], priorities: Tensor | None) -> None:
        """Adds K items, columns ``[K, ...]``. K may exceed the capacity.

        Args:
            priorities: Raw priorities ``[K]``. None: the largest priority so far, and at least 1.

        Raises:
            ValueError: Columns, shapes or types are wrong, or a priority is negative, infinite or
                NaN. Nothing is added.
        """
        count = len(next(iter(items.values()), ()))
        check_items(self._columns, items, count)
        if priorities is None:
            priorities = torch.full((count,), self._largest, dtype=torch.float64)
        weights, largest = _checked(priorities)
        if len(weights) != count:
            raise ValueError(f"each item needs one priority: got {len(weights)} priorities for {count} items")
        self._largest = max(self._largest, largest)
        ring = self._ring
        # Skip items that later items of this call would evict.
        skipped = max(0, count - ring.capacity)
        if skipped:
            items, weights = {name: rows[skipped:] for name, rows in items.items()}, weights[skipped:]
        # Evict the oldest items.
        first, evicted = ring.inserted + skipped, min(ring.size, max(0, ring.size + count - ring.capacity))
        for store in self._stores.values():
            store.drop(ring.evicted, evicted)
        # Store the new items.
        ring.inserted += count
        ring.evicted = max(ring.evicted, ring.inserted - ring.capacity)
        for store in self._stores.values():
            store.put(first, items)
        self._distribution.set(ring.slots(first, len(weights)), weights)

    def sample(self, count: int) -> SampleResult:
        """Samples `count` items, stratified: one from each of `count` equal parts of the priority
        sum.

        Raises:
            ValueError: There are no items, or all have priority 0.
        """
        if count < 1:
            raise ValueError(f"at least one item must be drawn, not {count}")
        if not self.priority_sum > 0:
            raise ValueError(f"nothing can be drawn: {self.size} items, priority sum {self.priority_sum}")
        # Draw slots.
        uniforms = (np.arange(count) + self._random.random(count)) / count
        slots, probabilities = self._distribution.draw(uniforms)
        versions = self._ring.versions(slots)
        # Copy their items.
        items: dict[str, Tensor] = {}
        for store in self._stores.values():
            items |= store.take(slots)
        self._sampled += count
        return SampleResult(
            items=items,
            slots=torch.from_numpy(slots),
            versions=torch.from_numpy(versions),
            probabilities=torch.from_numpy(probabilities),
            ages=torch.from_numpy(self._ring.inserted - versions),
        )

    def update(self, slots: Tensor, versions: Tensor, priorities: Tensor) -> PriorityUpdateResult:
        """Updates the raw priorities ``[k]`` of sampled items, except of those evicted since.

        The last priority of a repeated item counts.

        Raises:
            ValueError: A priority is negative, infinite or NaN, or the lengths differ. Nothing is
                updated.
        """
        weights, largest = _checked(priorities)
        at, version = slots.numpy(), versions.numpy()
        if at.shape != weights.shape or version.shape != weights.shape:
            raise ValueError(f"{len(at)} slots, {len(version)} versions and {len(weights)} priorities")
        # Skip evicted items.
        held = self._ring.holds(at, version)
        applied = int(np.count_nonzero(held))
        if applied < len(held):
            at, weights = at[held], weights[held]
        if applied:
            self._largest = max(self._largest, largest)
            self._distribution.set(at, weights)
        stale = len(held) - applied
        self._applied += applied
        self._stale += stale
        return PriorityUpdateResult(applied, stale)

    def clear(self) -> None:
        """Evicts all items. Versions and counts continue."""
        for store in self._stores.values():
            store.drop(self._ring.evicted, self._ring.size)
        self._ring.evicted = self._ring.inserted
        self._distribution.clear()

    def get_state(self) -> dict[str, Any]:
        """Returns a copy of the state, which consists of tensors and plain values."""
        return {
            "form": self._form,
            "counts": list(self.counts),
            "random": dict(self._random.bit_generator.state),
            "largest": self._largest,
            "distribution": self._distribution.get_state(),
            "stores": {name: store.get_state() for name, store in self._stores.items()},
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores the state of a buffer with the same arguments. Sampling continues identically.

        The exponent may differ, since raw priorities are stored.

        Raises:
            ValueError: The arguments differ, or this buffer has assigned later versions than the
                state, which would be assigned twice.
        """
        if state["form"] != self._form:
            raise ValueError(f"a state of {state['form']} does not fit a replay of {self._form}")
        inserted, evicted, sampled, applied, stale = state["counts"]
        if inserted < self._ring.inserted:
            raise ValueError(
                f"the state is {inserted} insertions old, this replay already {self._ring.inserted}: versions cannot go back"
            )
        self.clear()
        self._ring.inserted, self._ring.evicted = inserted, evicted
        self._sampled, self._applied, self._stale = sampled, applied, stale
        self._random.bit_generator.state = state["random"]
        # Checkpoints of earlier versions lack the largest priority.
        self._largest = state.get("largest", 1.0)
        for name, store in self._stores.items():
            store.set_state(state["stores"][name])
        self._distribution.set_state(state["distribution"])

    def check_valid(self) -> None:
        """Raises AssertionError with the violated invariant."""
        counts = self.counts
        assert min(counts) >= 0, f"a count is negative: {counts}"
        assert 0 <= self.size <= self.capacity, f"{self.size} items in {self.capacity} slots"
        for store in self._stores.values():
            store.check_valid()
        self._distribution.check_valid()


def _checked(priorities: Tensor) -> tuple[NDArray[np.float64], float]:
    """Returns the priorities as float64 ``[K]`` and their maximum. Raises ValueError."""
    weights: NDArray[np.float64] = priorities.numpy().astype(np.float64)
    if weights.ndim != 1:
        raise ValueError(f"priorities must be [K], not {tuple(weights.shape)}")
    largest = float(np.maximum.reduce(weights, initial=0.0))
    if len(weights) and not (np.minimum.reduce(weights) >= 0 and largest < np.inf):
        raise ValueError("priorities must be finite and at least 0")
    return weights, largest
