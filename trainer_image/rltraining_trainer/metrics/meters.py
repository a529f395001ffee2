"""Measures the rate of a counter and the duration of waits. Times are seconds of any clock."""

from __future__ import annotations

from collections import deque

RATE_SECONDS = 5.0
"""Length of the window in which a rate is measured."""


class RateMeter:
    """Measures the rate of a growing total over the last ``RATE_SECONDS``."""

    def __init__(self) -> None:
        # (time, total), the first at the start of the window.
        self._marks: deque[tuple[float, float]] = deque()

    def update(self, total: float, now: float) -> None:
        """Records a total. Keeps a few dozen marks, however often it is called."""
        marks = self._marks
        if len(marks) > 1 and now - marks[-2][0] < RATE_SECONDS / 50:
            marks[-1] = (now, total)
        else:
            marks.append((now, total))
        while len(marks) > 2 and now - marks[1][0] >= RATE_SECONDS:
            marks.popleft()

    @property
    def rate(self) -> float | None:
        """The rate per second. None before two updates at different times."""
        if len(self._marks) < 2:
            return None
        (start, before), (now, total) = self._marks[0], self._marks[-1]
        return (total - before) / (now - start) if now > start else None

    def rate_at(self, total: float, now: float) -> float | None:
        """Returns the rate per second, or the mean rate since the last update if that was long ago.

        It was long ago after ``RATE_SECONDS`` and twice the time between the first and the last measured update.

        Args:
            total: the current total, which may have no update yet.
            now: seconds.
        """
        if (rate := self.rate) is None:
            return None
        (start, _), (last, before) = self._marks[0], self._marks[-1]
        if now - last <= max(RATE_SECONDS, 2 * (last - start)):
            return rate
        return (total - before) / (now - last)


class WaitMeter:
    """Measures the total and the longest duration of waits."""

    def __init__(self) -> None:
        # The start of the current wait, and the total of all earlier ones, for other threads.
        self._wait: tuple[float | None, float] = (None, 0.0)
        self._longest = 0.0

    def begin(self, now: float) -> None:
        """Starts a wait, unless one is in progress."""
        since, before = self._wait
        if since is None:
            self._wait = now, before

    def end(self, now: float) -> None:
        """Ends the wait in progress, if there is one."""
        since, before = self._wait
        if since is not None:
            self._longest = max(self._longest, now - since)
            self._wait = None, before + now - since

    def take(self) -> float:
        """Returns the longest wait that ended since the previous call in seconds, or 0 if none did."""
        longest, self._longest = self._longest, 0.0
        return longest

    def total(self, now: float) -> float:
        """Returns the seconds of all waits, including the current one. Thread-safe."""
        since, before = self._wait
        return before if since is None else before + max(0.0, now - since)
