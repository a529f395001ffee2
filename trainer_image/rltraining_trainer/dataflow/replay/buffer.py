"""The replay memory of one process."""

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
    """`count` items that were drawn; some may be the same."""

    items: dict[str, Tensor]
    """Each [k, ...]: copies. Small columns share their memory, so they are not contiguous."""
    slots: Tensor
    """[k] int64."""
    versions: Tensor
    """[k] int64: the number of the insertion that filled the slot."""
    probabilities: Tensor
    """[k] float64: of each in this buffer at the moment of the draw."""
    ages: Tensor
    """[k] int64: insertions since it was added."""


class PriorityUpdateResult(NamedTuple):
    """What became of the priorities that came."""

    applied: int
    stale: int
    """Their items had been evicted."""


class ReplayCounts(NamedTuple):
    """Items since the beginning. inserted = evicted + size at all times."""

    inserted: int
    evicted: int
    sampled: int
    applied: int
    stale: int


class ReplayBuffer:
    """A ring of `capacity` items: the oldest go first. Not thread-safe.

    Prioritized draws item i with the probability p_i^α / Σ p^α (Schaul et al. 2016, arXiv 1511.05952, equation 1), where p is
    the priority that was given: the buffer adds nothing to it, and one of 0 is never drawn. Uniform draws all alike.

    With `frame_stack` > 1, the columns `observation` and `next_observation` are [frame_stack, ...] and each distinct frame
    is kept once: see FrameStacks.

    Raises:
        ValueError: a bad capacity, or columns that are not stacks of `frame_stack` frames.
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
            stacked = {name: self._columns.get(name) for name in STACKED}
            shape = stacked["observation"]
            if shape is None or stacked["next_observation"] != shape or shape.shape[:1] != (frame_stack,):
                raise ValueError(
                    f"with a frame stack of {frame_stack}, {' and '.join(STACKED)} must be alike, "
                    f"of shape [{frame_stack}, ...]: got {stacked}"
                )
            self._stores["stacks"] = FrameStacks(self._ring, shape, seed)
        whole = {
            name: column for name, column in self._columns.items() if frame_stack == 1 or name not in STACKED
        }
        self._stores["columns"] = Columns(self._ring, whole)
        self._random = np.random.Generator(np.random.PCG64(seed))
        self._largest = 1.0
        self._sampled = self._applied = self._stale = 0

    @property
    def capacity(self) -> int:
        return self._ring.capacity

    @property
    def size(self) -> int:
        """Items held."""
        return self._ring.size

    @property
    def priority_sum(self) -> float:
        """The sum of all powered priorities; the size, if all are drawn alike."""
        return self._distribution.priority_sum

    @property
    def min_priority(self) -> float:
        """The smallest powered priority, other than 0, of an item (1 if all are drawn alike); infinity if there is none.
        It looks at all of them."""
        return self._distribution.min_priority

    @property
    def counts(self) -> ReplayCounts:
        return ReplayCounts(
            self._ring.inserted, self._ring.evicted, self._sampled, self._applied, self._stale
        )

    @property
    def largest_priority(self) -> float:
        """Largest raw priority so far, at least 1: the default priority of new items."""
        return self._largest

    def add(self, items: Mapping[str, Tensor], priorities: Tensor) -> None:
        """Insert K items, [K, ...] each, with their raw priorities [K]. K may be 0, or more than there is room for.

        Raises:
            ValueError: other columns, shapes or types, or a priority that is negative, infinite or NaN. Nothing changes.
        """
        weights, largest = _checked(priorities)
        count = len(weights)
        check_items(self._columns, items, count)
        self._largest = max(self._largest, largest)
        ring = self._ring
        passed = max(0, count - ring.capacity)  # evicted by the others of this very call
        if passed:
            items, weights = {name: rows[passed:] for name, rows in items.items()}, weights[passed:]
        first, evicted = ring.inserted + passed, min(ring.size, max(0, ring.size + count - ring.capacity))
        for store in self._stores.values():
            store.drop(ring.evicted, evicted)
        ring.inserted += count
        ring.evicted = max(ring.evicted, ring.inserted - ring.capacity)
        for store in self._stores.values():
            store.put(first, items)
        self._distribution.set(ring.slots(first, len(weights)), weights)

    def sample(self, count: int) -> SampleResult:
        """Draws exactly `count` items, stratified: one from each `count`-th part of the mass.

        Raises:
            ValueError: there is nothing to draw: no items, or all have the priority 0.
        """
        if count < 1:
            raise ValueError(f"at least one item must be drawn, not {count}")
        if not self.priority_sum > 0:
            raise ValueError(f"nothing can be drawn: {self.size} items with a mass of {self.priority_sum}")
        uniforms = (np.arange(count) + self._random.random(count)) / count
        slots, probabilities = self._distribution.draw(uniforms)
        versions = self._ring.versions(slots)
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
        """New raw priorities [k] of items that were drawn; those evicted since are left out. Of several for one item, the
        last one holds.

        Raises:
            ValueError: a priority is negative, infinite or NaN, or the lengths differ. Nothing changes.
        """
        weights, largest = _checked(priorities)
        where, which = slots.numpy(), versions.numpy()
        if where.shape != weights.shape or which.shape != weights.shape:
            raise ValueError(f"{len(where)} slots, {len(which)} versions and {len(weights)} priorities")
        held = self._ring.holds(where, which)
        applied = int(np.count_nonzero(held))
        if applied < len(held):
            where, weights = where[held], weights[held]
        if applied:
            self._largest = max(self._largest, largest)
            self._distribution.set(where, weights)
        stale = len(held) - applied
        self._applied += applied
        self._stale += stale
        return PriorityUpdateResult(applied, stale)

    def clear(self) -> None:
        """Evict all. Versions and counts go on."""
        for store in self._stores.values():
            store.drop(self._ring.evicted, self._ring.size)
        self._ring.evicted = self._ring.inserted
        self._distribution.clear()

    def get_state(self) -> dict[str, Any]:
        """A copy of everything, for checkpoints: tensors and plain values."""
        return {
            "form": self._form,
            "counts": list(self.counts),
            "random": dict(self._random.bit_generator.state),
            "largest": self._largest,
            "distribution": self._distribution.get_state(),
            "stores": {name: store.get_state() for name, store in self._stores.items()},
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from the state of a buffer that was made with the same arguments; draws then are what they would have been.
        The exponent may be another: raw priorities are kept.

        Raises:
            ValueError: it was made with others, or has given fewer versions than this one, which would give them again.
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
        self._largest = state.get("largest", 1.0)  # a checkpoint of an earlier version has none
        for name, store in self._stores.items():
            store.set_state(state["stores"][name])
        self._distribution.set_state(state["distribution"])

    def check_valid(self) -> None:
        """Raises AssertionError, saying which, if an invariant does not hold."""
        counts = self.counts
        assert min(counts) >= 0, f"a count is negative: {counts}"
        assert 0 <= self.size <= self.capacity, f"{self.size} items in {self.capacity} slots"
        for store in self._stores.values():
            store.check_valid()
        self._distribution.check_valid()


def _checked(priorities: Tensor) -> tuple[NDArray[np.float64], float]:
    """Returns the priorities as float64 [K], and the largest of them. Raises ValueError."""
    weights: NDArray[np.float64] = priorities.numpy().astype(np.float64)
    if weights.ndim != 1:
        raise ValueError(f"priorities must be [K], not {tuple(weights.shape)}")
    largest = float(np.maximum.reduce(weights, initial=0.0))
    if len(weights) and not (np.minimum.reduce(weights) >= 0 and largest < np.inf):
        raise ValueError("priorities must be finite and at least 0")
    return weights, largest
