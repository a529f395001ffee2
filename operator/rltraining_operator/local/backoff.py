"""When a container is started again: at once after a kill from outside, ever later after failures of its own."""

from __future__ import annotations

from dataclasses import dataclass

from rltraining_operator.failures import KILLED_FROM_OUTSIDE

FIRST_SECONDS, MAX_SECONDS = 0.5, 30.0
HASTY_SECONDS = 1.0
"""Who is killed sooner than this is not started at once: whatever kills it (the kernel, for want of memory) is there."""
GOOD_SECONDS = 60.0
"""Whoever has run so long starts anew at FIRST_SECONDS."""


@dataclass
class Backoff:
    """The back-off of one container."""

    failures: int = 0

    def after(self, code: int, reason: str, ran_seconds: float) -> float:
        """Seconds to wait after an end with this exit code."""
        if code in KILLED_FROM_OUTSIDE and reason != "OOMKilled":
            return 0.0 if ran_seconds >= HASTY_SECONDS else FIRST_SECONDS
        if ran_seconds >= GOOD_SECONDS:
            self.failures = 0
        self.failures += 1
        return float(min(FIRST_SECONDS * 2.0 ** min(self.failures - 1, 16), MAX_SECONDS))
