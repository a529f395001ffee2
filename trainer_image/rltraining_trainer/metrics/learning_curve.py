"""The learning curve of a run of any length, with a bounded number of points."""

from __future__ import annotations

import math
from typing import Any

from rltraining_api.curve import CURVE_POINTS_MAX, CurvePoint

FIRST_SPACING = 0.2
"""Initial minimum time between two points in seconds."""


class LearningCurve:
    """Keeps points with a minimum spacing, and the newest point.

    When the curve is full, every second point is dropped and the spacing is doubled.
    """

    def __init__(self) -> None:
        self.points: tuple[CurvePoint, ...] = ()
        """Points in the order of steps. Immutable, so that other threads can read them."""
        self._spacing = FIRST_SPACING

    def add(self, environment_steps: int, seconds: float, mean_return: float | None) -> None:
        """Adds a point, unless there is no return yet. Steps and seconds must not decrease."""
        points = self.points
        is_new = not points or environment_steps > points[-1].environment_steps
        if mean_return is None or not math.isfinite(mean_return) or not is_new:
            return
        # Drop the previous newest point if it is too close to the one before.
        if len(points) > 1 and points[-1].seconds - points[-2].seconds < self._spacing:
            points = points[:-1]
        newest = CurvePoint(
            environment_steps=environment_steps,
            seconds=round(seconds, 2),
            mean_return=round(mean_return, 4),
        )
        # Thin a full curve out.
        if len(points) == CURVE_POINTS_MAX:
            points = points[::2]
            self._spacing *= 2
        self.points = (*points, newest)

    def get_state(self) -> dict[str, Any]:
        points = [(point.environment_steps, point.seconds, point.mean_return) for point in self.points]
        return {"points": points, "spacing": self._spacing}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores a state. Later points are dropped."""
        self.points = tuple(
            CurvePoint(environment_steps=steps, seconds=seconds, mean_return=mean_return)
            for steps, seconds, mean_return in state["points"]
        )
        self._spacing = state["spacing"]
