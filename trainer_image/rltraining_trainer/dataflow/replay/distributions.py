"""How items are drawn: in proportion to their powered priorities, or all alike."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from rltraining_trainer.dataflow.replay.storage import Ring, Slots
from rltraining_trainer.dataflow.replay.sum_tree import SumTree

Floats = NDArray[np.float64]


class Drawn(NamedTuple):
    slots: Slots
    probabilities: Floats


class Distribution(Protocol):
    """Over the slots of a ring that are in use."""

    @property
    def priority_sum(self) -> float:
        """The sum of what items weigh in the draw."""

    @property
    def min_priority(self) -> float:
        """The smallest weight, other than 0, of an item; infinity if there is none. Looks at all of them."""

    def set(self, slots: Slots, priorities: Floats) -> None:
        """Items came, or their raw priorities changed; the last one holds for a slot that is named twice."""

    def clear(self) -> None: ...

    def draw(self, uniforms: Floats) -> Drawn:
        """One item for each of `uniforms`, sorted in [0, 1). The mass must not be 0."""

    def get_state(self) -> dict[str, Any]:
        """A copy of what is held, oldest first."""

    def set_state(self, state: dict[str, Any]) -> None:
        """Hold that instead; the ring already says where."""

    def check_valid(self) -> None: ...


class Prioritized:
    """P(i) = p_i^α / Σ p^α (Schaul et al. 2016, arXiv 1511.05952, equation 1). Raw priorities p are kept apart."""

    def __init__(self, ring: Ring, exponent: float) -> None:
        self._ring = ring
        self._exponent = exponent
        self._raw = np.zeros(ring.capacity)
        self._tree = SumTree(ring.capacity)

    @property
    def priority_sum(self) -> float:
        return self._tree.root

    @property
    def min_priority(self) -> float:
        leaves = self._tree.leaves
        return float(np.min(leaves, where=leaves > 0, initial=np.inf))

    def set(self, slots: Slots, priorities: Floats) -> None:
        self._raw[slots] = priorities
        self._tree.set(slots, self._powered(priorities))

    def clear(self) -> None:
        self._raw.fill(0)
        self._tree.clear()

    def draw(self, uniforms: Floats) -> Drawn:
        mass = self._tree.root
        slots = self._tree.query(uniforms * mass)
        return Drawn(slots, self._tree.leaves.take(slots) / mass)

    def get_state(self) -> dict[str, Any]:
        return {"priorities": torch.from_numpy(self._raw.take(self._ring.held()))}

    def set_state(self, state: dict[str, Any]) -> None:
        self.clear()
        self.set(self._ring.held(), state["priorities"].numpy())

    def check_valid(self) -> None:
        self._tree.check_valid()
        assert np.array_equal(self._tree.leaves, self._powered(self._raw)), (
            "a leaf is not its powered priority"
        )
        free = np.ones(self._ring.capacity, bool)
        free[self._ring.held()] = False
        assert not self._raw[free].any(), "an empty slot has a priority"

    def _powered(self, priorities: Floats) -> Floats:
        return priorities**self._exponent if self._exponent else np.sign(priorities)  # 0 stays 0


class Uniform:
    """P(i) = 1 / size. Priorities mean nothing."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring

    @property
    def priority_sum(self) -> float:
        return float(self._ring.size)

    @property
    def min_priority(self) -> float:
        return 1.0 if self._ring.size else np.inf

    def set(self, slots: Slots, priorities: Floats) -> None:
        pass

    def clear(self) -> None:
        pass

    def draw(self, uniforms: Floats) -> Drawn:
        size = self._ring.size
        versions = self._ring.evicted + np.minimum((uniforms * size).astype(np.int64), size - 1)
        return Drawn(versions % self._ring.capacity, np.full(len(uniforms), 1 / size))

    def get_state(self) -> dict[str, Any]:
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        pass

    def check_valid(self) -> None:
        pass
