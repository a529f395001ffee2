"""The learning curve as a status holds it: few points, spread over the whole run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeVar

from pydantic import Field

from rltraining_api.base import ApiModel
from rltraining_api.fields import ATOMIC_LIST, StepsOrZero

CURVE_POINTS_MAX = 100
"""About 7 KB of JSON, of the 1.5 MiB that etcd holds of an object."""

T = TypeVar("T")


class CurvePoint(ApiModel):
    """The mean return at one point of training."""

    environment_steps: StepsOrZero
    """Environment steps used so far."""
    seconds: float
    """Seconds of training so far, over all restarts."""
    mean_return: float
    """`progress.meanReturn` at this point."""


Curve = Annotated[
    tuple[CurvePoint, ...],
    Field(max_length=CURVE_POINTS_MAX, json_schema_extra=ATOMIC_LIST),
]


def thinned(points: Sequence[T], most: int) -> tuple[T, ...]:
    """Returns at most `most` (two or more) points, evenly chosen, including the first and the
    last."""
    if len(points) <= most:
        return tuple(points)
    step = (len(points) - 1) / (most - 1)
    return tuple(points[round(i * step)] for i in range(most))


def joined(known: Sequence[CurvePoint], reported: Sequence[CurvePoint], steps: int) -> tuple[CurvePoint, ...]:
    """Joins the known points of a run with newly reported ones. Known points beyond `steps`, where
    the run is now, are discarded."""
    kept = [point for point in known if point.environment_steps <= steps]
    end = kept[-1].environment_steps if kept else -1
    kept += [point for point in reported if point.environment_steps > end]
    return thinned(kept, CURVE_POINTS_MAX)
