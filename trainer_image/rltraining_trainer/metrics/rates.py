"""How fast a counter rises."""

from __future__ import annotations

from collections import deque


class RateMeter:
    """Rate of a growing total over the last ``window`` seconds; times are seconds of any clock."""

    def __init__(self, window: float = 5.0) -> None:
        self._window = window
        self._marks: deque[tuple[float, float]] = deque()  # (time, total), the first at the window's start

    def update(self, total: float, now: float) -> None:
        """The total is ``total`` at ``now``. Often is fine: a few dozen marks are kept."""
        marks = self._marks
        if len(marks) > 1 and now - marks[-2][0] < self._window / 50:
            marks[-1] = (now, total)
        else:
            marks.append((now, total))
        while len(marks) > 2 and now - marks[1][0] >= self._window:
            marks.popleft()

    @property
    def rate(self) -> float | None:
        """Per second; None before two updates at different times."""
        if len(self._marks) < 2:
            return None
        (start, before), (now, total) = self._marks[0], self._marks[-1]
        return (total - before) / (now - start) if now > start else None
