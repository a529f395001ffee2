"""The curve of a run of any length in a bounded number of points."""

from __future__ import annotations

import math
from typing import Any

from rltraining_api.curve import CURVE_POINTS_MAX, CurvePoint

FIRST_SPACING = 0.2
"""Seconds between two points of a run that has just begun."""


class LearningCurve:
    """Points at least a spacing apart, and the newest. When there is no room, every second one goes and the spacing doubles."""

    def __init__(self) -> None:
        self.points: tuple[CurvePoint, ...] = ()
        """By growing steps. Replaced whole, so that other threads may read it."""
        self._spacing = FIRST_SPACING

    def add(self, environment_steps: int, seconds: float, mean_return: float | None) -> None:
        """At ``seconds`` of training; steps and seconds never shrink. Before there is a return, there is no point."""
        points = self.points
        is_new = not points or environment_steps > points[-1].environment_steps
        if mean_return is None or not math.isfinite(mean_return) or not is_new:
            return
        if len(points) > 1 and points[-1].seconds - points[-2].seconds < self._spacing:
            points = points[:-1]  # it was there for being the newest
        newest = CurvePoint(
            environment_steps=environment_steps,
            seconds=round(seconds, 2),
            mean_return=round(mean_return, 4),
        )
        if len(points) == CURVE_POINTS_MAX:
            points = points[::2]
            self._spacing *= 2
        self.points = (*points, newest)

    def get_state(self) -> dict[str, Any]:
        points = [(point.environment_steps, point.seconds, point.mean_return) for point in self.points]
        return {"points": points, "spacing": self._spacing}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on as the object whose ``get_state`` it was: later points are gone."""
        self.points = tuple(
            CurvePoint(environment_steps=steps, seconds=seconds, mean_return=mean_return)
            for steps, seconds, mean_return in state["points"]
        )
        self._spacing = state["spacing"]
