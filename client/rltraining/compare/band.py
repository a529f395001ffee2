"""Combines curves of several seeds: their mean and range. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from rltraining_api.curve import CurvePoint

POINTS = 200
"""Number of points on the common axis."""

Curve = Sequence[CurvePoint]


@dataclass(frozen=True)
class Band:
    """Mean and range on a common axis of environment steps."""

    steps: tuple[float, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


def band(curves: Sequence[Curve]) -> Band | None:
    """Returns mean, minimum and maximum of the curves, from the latest start to the latest end. A
    curve that ends earlier keeps its last return. Ignores curves without points, and returns None
    if there is no other."""
    known = [curve for curve in curves if curve]
    if not known:
        return None
    if len(known) == 1:
        steps = tuple(float(point.environment_steps) for point in known[0])
        returns = tuple(point.mean_return for point in known[0])
        return Band(steps, returns, returns, returns)
    begin = max(curve[0].environment_steps for curve in known)
    end = max(curve[-1].environment_steps for curve in known)
    steps = tuple(begin + (end - begin) * i / (POINTS - 1) for i in range(POINTS))
    columns = [[at(curve, step) for curve in known] for step in steps]
    return Band(
        steps,
        tuple(sum(column) / len(column) for column in columns),
        tuple(map(min, columns)),
        tuple(map(max, columns)),
    )


def at(curve: Curve, step: float) -> float:
    """Returns the return at a step, by linear interpolation. Constant beyond both ends."""
    i = bisect_right(curve, step, key=lambda point: point.environment_steps)
    if i == 0:
        return curve[0].mean_return
    if i == len(curve):
        return curve[-1].mean_return
    before, after = curve[i - 1], curve[i]
    share = (step - before.environment_steps) / (after.environment_steps - before.environment_steps)
    return before.mean_return + share * (after.mean_return - before.mean_return)
