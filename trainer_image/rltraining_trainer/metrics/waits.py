"""How long somebody waited."""

from __future__ import annotations


class WaitMeter:
    """Several waits; times are seconds of any clock. Whoever goes on waiting only begins once."""

    def __init__(self) -> None:
        self._wait: tuple[float | None, float] = (
            None,
            0.0,
        )  # since when one is under way, seconds of all before
        self._longest = 0.0

    def begin(self, now: float) -> None:
        """A wait begins, if none is under way."""
        since, before = self._wait
        if since is None:
            self._wait = now, before

    def end(self, now: float) -> None:
        """The wait that is under way is over."""
        since, before = self._wait
        if since is not None:
            self._longest = max(self._longest, now - since)
            self._wait = None, before + now - since

    def take(self) -> float:
        """Seconds of the longest wait that ended since this was last asked; 0 if none did."""
        longest, self._longest = self._longest, 0.0
        return longest

    def total(self, now: float) -> float:
        """Seconds of all waits, with the one that is under way; never less than before. Any thread may ask."""
        since, before = self._wait
        return before if since is None else before + max(0.0, now - since)
