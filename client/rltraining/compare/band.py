"""Combines curves of several seeds: their mean and range. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from rltraining_api.curve import CurvePoint

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

POINTS = 200
"""Number of points on the common axis."""

Curve = Sequence[CurvePoint]


class Band(NamedTuple):
    """Arrays of the mean and the range of the return, on a common axis of environment steps."""

    steps: NDArray[float64]
    mean: NDArray[float64]
    low: NDArray[float64]
    high: NDArray[float64]


def band(curves: Sequence[Curve]) -> Band | None:
    """Returns mean, minimum and maximum of the curves, from the latest start to the latest end. A
    curve that ends earlier keeps its last return. Ignores curves without points, and returns None
    if there is no other."""
    import numpy as np  # only where the band is drawn

    known = [
        ([point.environment_steps for point in curve], [point.mean_return for point in curve])
        for curve in curves
        if curve
    ]
    if not known:
        return None
    begin, end = max(steps[0] for steps, _ in known), max(steps[-1] for steps, _ in known)
    axis = np.linspace(begin, end, POINTS) if len(known) > 1 else np.array(known[0][0], float)
    returns = np.array([np.interp(axis, steps, means) for steps, means in known])
    return Band(axis, returns.mean(axis=0), returns.min(axis=0), returns.max(axis=0))
