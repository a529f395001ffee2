"""How several learners make one update of their gradients."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

Reduce = Callable[[Tensor, float], float]
"""Sums a gradient ``[N]`` in place over all learners, and returns the sum of their counts of what they learnt from."""


def alone(gradient: Tensor, count: float) -> float:
    """The only learner's ``Reduce``."""
    return count
