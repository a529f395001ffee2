"""Sampling distributions over the slots of a ring: proportional to priorities, or uniform."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from rltraining_trainer.dataflow.replay.storage import Ring, Slots
from rltraining_trainer.dataflow.replay.sum_tree import Floats, SumTree


class Drawn(NamedTuple):
    slots: Slots
    probabilities: Floats


class Distribution(Protocol):
    """A distribution over the slots of a ring that are in use."""

    @property
    def priority_sum(self) -> float:
        """The sum of the unnormalized probabilities of all items."""

    @property
    def min_priority(self) -> float:
        """The smallest positive unnormalized probability, or infinity. Scans all items."""

    def set(self, slots: Slots, priorities: Floats) -> None:
        """Sets the raw priorities of slots. The last value of a repeated slot counts."""

    def clear(self) -> None: ...

    def draw(self, uniforms: Floats) -> Drawn:
        """Draws an item for each of `uniforms`, sorted in [0, 1). Requires a positive sum."""

    def get_state(self) -> dict[str, Any]:
        """Returns a copy of the state, oldest item first."""

    def set_state(self, state: dict[str, Any]) -> None:
        """Replaces the state. The ring must have been restored before."""

    def check_valid(self) -> None: ...


class Prioritized:
    """P(i) = p_i^α / Σ p^α (Schaul et al. 2016, arXiv 1511.05952, equation 1)."""

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
        total = self._tree.root
        slots = self._tree.query(uniforms * total)
        return Drawn(slots, self._tree.leaves.take(slots) / total)

    def get_state(self) -> dict[str, Any]:
        return {"priorities": torch.from_numpy(self._raw.take(self._ring.held()))}

    def set_state(self, state: dict[str, Any]) -> None:
        self.clear()
        self.set(self._ring.held(), state["priorities"].numpy())

    def check_valid(self) -> None:
        self._tree.check_valid()
        powered = self._powered(self._raw)
        assert np.array_equal(self._tree.leaves, powered), "a leaf is not its powered priority"
        free = np.ones(self._ring.capacity, bool)
        free[self._ring.held()] = False
        assert not self._raw[free].any(), "an empty slot has a priority"

    def _powered(self, priorities: Floats) -> Floats:
        # 0 must stay 0 with an exponent of 0, too.
        return priorities**self._exponent if self._exponent else np.sign(priorities)


class Uniform:
    """P(i) = 1 / size. Ignores priorities."""

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
