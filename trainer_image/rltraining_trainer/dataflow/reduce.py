"""How several learners combine their gradients in one update."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

Reduce = Callable[[Tensor, float], float]
"""Sums a gradient ``[N]`` in place over all learners, and returns the sum of their counts of steps or items."""


def alone(gradient: Tensor, count: float) -> float:
    """Returns ``count``: the ``Reduce`` of a single learner."""
    return count
