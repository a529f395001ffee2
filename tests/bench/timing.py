"""How long a call takes, on a machine that others use as well."""

from __future__ import annotations

import time
from collections.abc import Callable


def cpu_seconds(work: Callable[[], object], budget: float = 1.5, calls: int = 10) -> float:
    """CPU time of one call: the smallest mean of ``calls`` over ``budget`` seconds or so, as other processes only ever add."""
    best, end = float("inf"), time.monotonic() + budget
    while time.monotonic() < end:
        start = time.process_time()
        for _ in range(calls):
            work()
        best = min(best, (time.process_time() - start) / calls)
    return best
