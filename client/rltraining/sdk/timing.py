"""How patient the SDK is, in one place; tests are less patient, and never sleep."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

_JITTER = random.SystemRandom()
"""Not the global one, which the program may have seeded; and forked processes do not go on in step."""


@dataclass(frozen=True)
class Timing:
    """Seconds, but for `tries`."""

    connect: float = 10.0
    """To make a connection."""
    answer: float = 30.0
    """Until a request is answered."""
    watch: float = 240.0
    """After which the API server is asked to end a watch, which is then begun anew."""
    silence: float = 90.0
    """A watch that says nothing for so long, not even a bookmark, is taken for dead."""
    look: float = 10.0
    """While a pod that is followed has no container, between two looks at whether its job is over."""
    patience: float = 600.0
    """How long a wait goes on while the API server cannot be reached."""
    tries: int = 3
    """Times that a request is made before its failure is told."""
    first_pause: float = 0.25
    longest_pause: float = 15.0
    pause: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic

    def pause_after(self, failures: int) -> float:
        """Before the next try, after so many failures in a row: doubled each time, with jitter."""
        ceiling = min(self.longest_pause, self.first_pause * 2.0 ** (min(failures, 30) - 1))
        return ceiling * _JITTER.uniform(0.5, 1.0)


class Patience:
    """Goes on trying until failures in a row have lasted for `timing.patience`."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self.failures = 0
        """In a row."""
        self._since = 0.0

    def succeeded(self) -> None:
        self.failures = 0

    def failed(self, error: Exception, until: float | None = None) -> None:
        """Pause, at most until that time; raises the error when patience is at its end."""
        now = self._timing.clock()
        if self.failures == 0:
            self._since = now
        self.failures += 1
        if now - self._since > self._timing.patience:
            raise error
        pause = self._timing.pause_after(self.failures)
        self._timing.pause(pause if until is None else max(0.0, min(pause, until - now)))
