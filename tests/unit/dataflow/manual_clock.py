"""A clock that only the test advances."""

from __future__ import annotations


class Clock:
    """Returns `now`, in seconds, which the test sets."""

    def __init__(self, now: float = 100.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
