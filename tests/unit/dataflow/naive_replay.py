"""A naive replay memory: a list of all items, searched from the start each time."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from rltraining_trainer.dataflow.replay import Column, SampleResult
from torch import Tensor

Items = dict[str, Tensor]


def random_items(columns: dict[str, Column], count: int, seed: int, kinds: int = 2**31 - 1) -> Items:
    """Returns ``count`` rows of ``columns``, made of ``kinds`` different numbers."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randint(0, kinds, (count, *column.shape), generator=generator).to(column.dtype)
        for name, column in columns.items()
    }


@dataclass
class NaiveReplay:
    capacity: int
    exponent: float | None
    """α; None draws uniformly."""
    items: dict[int, Items] = field(default_factory=dict)
    """The stored items by version, oldest first."""
    priorities: dict[int, float] = field(default_factory=dict)
    inserted: int = 0

    def add(self, items: Items, priorities: Tensor) -> None:
        for i, priority in enumerate(priorities.tolist()):
            self.items[self.inserted] = {name: rows[i].clone() for name, rows in items.items()}
            self.priorities[self.inserted] = priority
            self.inserted += 1
            if len(self.items) > self.capacity:
                oldest = min(self.items)
                del self.items[oldest], self.priorities[oldest]

    def update(self, versions: Tensor, priorities: Tensor) -> tuple[int, int]:
        held = [version in self.items for version in versions.tolist()]
        for version, priority in zip(versions.tolist(), priorities.tolist(), strict=True):
            if version in self.items:
                self.priorities[version] = priority
        return sum(held), len(held) - sum(held)

    def clear(self) -> None:
        self.items.clear()
        self.priorities.clear()

    def weights(self) -> dict[int, float]:
        """Returns each version's weight in a draw."""
        return {
            version: 1.0 if self.exponent is None else priority**self.exponent if priority > 0 else 0.0
            for version, priority in self.priorities.items()
        }

    def check(self, draw: SampleResult) -> None:
        """Checks the fields of a draw, and that each item is from its stratum of the priority sum."""
        weights, versions = self.weights(), draw.versions.tolist()
        mass, count = sum(weights.values()), len(versions)
        for i, version in enumerate(versions):
            assert version in self.items, f"version {version} is not held"
            for name, rows in draw.items.items():
                assert torch.equal(rows[i], self.items[version][name]), f"{name} of version {version}"
        assert draw.slots.tolist() == [version % self.capacity for version in versions]
        assert draw.ages.tolist() == [self.inserted - version for version in versions]
        expected = torch.tensor([weights[version] / mass for version in versions], dtype=torch.float64)
        assert torch.allclose(draw.probabilities, expected, rtol=1e-12, atol=0)
        assert min(draw.probabilities) > 0
        # Follow the order in which the draw visits the items.
        order = sorted(weights) if self.exponent is None else sorted(weights, key=lambda v: v % self.capacity)
        below, upto = {}, 0.0
        for version in order:
            below[version] = upto
            upto += weights[version]
        slack = 1e-9 * mass
        for i, version in enumerate(versions):
            assert below[version] <= (i + 1) * mass / count + slack, f"draw {i} of {count} is too late"
            assert below[version] + weights[version] >= i * mass / count - slack, f"draw {i} is too early"
