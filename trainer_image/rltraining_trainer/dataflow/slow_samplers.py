"""Samplers that contribute nothing, because all their data is too old when it arrives."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from rltraining_api.contract import Warning

MOST = 10
"""Number of consecutive items of a sampler that may be too old before there is a warning."""
MEMORY_SECONDS = 1800.0
"""Time after which a sampler that sends no more items is forgotten, since it may have been removed."""


class _Dropped(NamedTuple):
    in_a_row: int
    last: float
    """Seconds."""


class SlowSamplers:
    """Counts the items of each sampler that were dropped in a row, because their parameters were too old."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._dropped: dict[str, _Dropped] = {}

    def used(self, sampler: str) -> None:
        """Records that an item was not too old."""
        self._dropped.pop(sampler, None)

    def dropped(self, sampler: str) -> None:
        """Records that an item was too old."""
        before = self._dropped.get(sampler)
        self._dropped[sampler] = _Dropped(1 + (before.in_a_row if before else 0), self._clock())

    def warnings(self, items: str, max_lag: int | None) -> tuple[Warning, ...]:
        """Returns a warning if there are such samplers. ``items``: "unrolls" or "gradients"."""
        since, found = self._clock() - MEMORY_SECONDS, self._dropped.copy()
        slow = sorted(name for name, one in found.items() if one.in_a_row >= MOST and one.last >= since)
        if not slow:
            return ()
        more = f" (and {len(slow) - 1} more)" if len(slow) > 1 else ""
        message = (
            f"{slow[0]}{more} contributes nothing: the parameters of its last {MOST} {items} were more than {max_lag} "
            "versions old, so that they were dropped: raise maxPolicyLag, or give the sampler more CPU"
        )
        return (Warning(reason="DataTooOld", message=message),)
