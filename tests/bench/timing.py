"""Measures the duration of a call on a shared machine."""

from __future__ import annotations

import time
from collections.abc import Callable


def cpu_seconds(work: Callable[[], object], budget: float = 1.5, calls: int = 10) -> float:
    """Returns the CPU time of one call.

    This is the smallest mean of ``calls`` over about ``budget`` seconds, as other processes only add time.
    """
    best, end = float("inf"), time.monotonic() + budget
    while time.monotonic() < end:
        start = time.process_time()
        for _ in range(calls):
            work()
        best = min(best, (time.process_time() - start) / calls)
    return best
