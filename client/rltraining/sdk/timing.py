"""Defines all time-outs and retries of the SDK. Tests use shorter times, and never sleep."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

_JITTER = random.SystemRandom()
"""Separate from the global generator, which the program may have seeded. Forked processes do not
share its state."""


@dataclass(frozen=True)
class Timing:
    """Times in seconds, except for `tries`."""

    connect: float = 10.0
    """Time-out of a connection attempt."""
    answer: float = 30.0
    """Time-out of a request."""
    watch: float = 240.0
    """Duration of a watch, after which the API server ends it and the client starts another."""
    silence: float = 90.0
    """Time without an event or bookmark after which a watch is considered broken."""
    look: float = 10.0
    """Interval of checks whether the job is over, while a followed pod has no container."""
    patience: float = 600.0
    """How long a wait tolerates an unreachable API server."""
    tries: int = 3
    """Number of attempts of a request before its failure is reported."""
    first_pause: float = 0.25
    longest_pause: float = 15.0
    pause: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic

    def pause_after(self, failures: int) -> float:
        """Returns the delay before the next attempt. The delay doubles with each failure in a row,
        with jitter."""
        ceiling = min(self.longest_pause, self.first_pause * 2.0 ** (min(failures, 30) - 1))
        return ceiling * _JITTER.uniform(0.5, 1.0)


class Patience:
    """Limits retries: failures in a row may last for `timing.patience`."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self.failures = 0
        """Number of failures in a row."""
        self._since = 0.0

    def succeeded(self) -> None:
        self.failures = 0

    def failed(self, error: Exception, until: float | None = None) -> None:
        """Sleeps before the next attempt, at most until that time. Raises the error after
        `timing.patience`."""
        now = self._timing.clock()
        if self.failures == 0:
            self._since = now
        self.failures += 1
        if now - self._since > self._timing.patience:
            raise error
        pause = self._timing.pause_after(self.failures)
        self._timing.pause(pause if until is None else max(0.0, min(pause, until - now)))
