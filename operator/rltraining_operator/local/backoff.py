"""Determines when a container is restarted: immediately after a kill from outside, with back-off
after failures."""

from __future__ import annotations

from dataclasses import dataclass

from rltraining_operator.failures.pod_failure import KILLED_FROM_OUTSIDE

FIRST_SECONDS, MAX_SECONDS = 0.5, 30.0
HASTY_SECONDS = 1.0
"""A container that is killed sooner than this is not restarted immediately, because the cause (such
as a lack of memory) persists."""
GOOD_SECONDS = 60.0
"""Seconds of running after which the back-off is reset."""


@dataclass
class Backoff:
    """The back-off of one container."""

    failures: int = 0

    def after(self, code: int, reason: str, ran_seconds: float) -> float:
        """Returns the seconds to wait after an exit with this code."""
        if code in KILLED_FROM_OUTSIDE and reason != "OOMKilled":
            return 0.0 if ran_seconds >= HASTY_SECONDS else FIRST_SECONDS
        if ran_seconds >= GOOD_SECONDS:
            self.failures = 0
        self.failures += 1
        return float(min(FIRST_SECONDS * 2.0 ** min(self.failures - 1, 16), MAX_SECONDS))
