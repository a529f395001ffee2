"""How long somebody waited at most."""

from __future__ import annotations


class WaitMeter:
    """The longest of several waits; times are seconds of any clock. Whoever goes on waiting only begins once."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._longest = 0.0

    def begin(self, now: float) -> None:
        """A wait begins, if none is under way."""
        if self._since is None:
            self._since = now

    def end(self, now: float) -> None:
        """The wait that is under way is over."""
        if self._since is not None:
            self._longest = max(self._longest, now - self._since)
            self._since = None

    def take(self) -> float:
        """Seconds of the longest wait that ended since this was last asked; 0 if none did."""
        longest, self._longest = self._longest, 0.0
        return longest
