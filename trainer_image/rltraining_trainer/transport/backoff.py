"""Delays retries exponentially, with jitter."""

from __future__ import annotations

import random
import threading

_SOONEST = 0.05
_FIRST = 0.3


class Backoff:
    """Exponential back-off with full jitter.

    The n-th delay is uniform between 0.05 s and min(cap, 0.3 s * 2**n), so that a hundred samplers
    that lost the same learner do not return in step (M. Brooker, Exponential Backoff And Jitter,
    AWS 2015).
    """

    def __init__(self, cap: float = 2.0, rng: random.Random | None = None) -> None:
        """`cap`: the longest delay in seconds."""
        self._cap = cap
        self._rng = rng or random.Random()
        self._bound = _FIRST

    def delay(self) -> float:
        """Returns the seconds to wait before the next attempt. Each call counts as a failure."""
        bound = min(self._cap, self._bound)
        self._bound = min(self._cap, 2 * self._bound)
        return self._rng.uniform(_SOONEST, bound)

    def wait(self, stopping: threading.Event) -> bool:
        """Sleeps for the next delay. Returns True as soon as `stopping` is set: give up."""
        return stopping.wait(self.delay())

    def reset(self) -> None:
        """Resets the delay to the shortest one, after a success."""
        self._bound = _FIRST
