"""Credits, without which samplers collect nothing. They bound policy lag for any number of samplers."""

from __future__ import annotations

import time
from collections.abc import Callable

LEASE_SECONDS = 5.0
"""Shortest lease of a credit. A frozen or dead sampler may hold a credit for this time."""
LEASE_COLLECTIONS = 10.0
"""The lease of a credit, as a multiple of the mean time in which samplers collect an item."""
_WEIGHT = 0.05  # of the newest collection in that mean

Grant = Callable[[], None]
"""Sends a credit to a sampler that waits for it."""


class Credits:
    """Hands out at most `limit` credits, first come, first served. Not thread-safe.

    A credit is out while its sampler collects an item, and then while the item is queued. Items are used in the
    order of their arrival, so that an item waits for fewer than `limit` others.

    A sampler holds at most one credit. A restarted sampler takes over the credit of its previous incarnation. The
    lease of a credit whose sampler does not return ends after some time, and the credit goes to another sampler.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit: int | None = None
        """None: no limit."""
        self._clock = clock
        self._waiting: dict[str, list[Grant]] = {}  # by sampler, in the order of their requests
        self._granted: dict[str, float] = {}  # samplers that collect: since when
        self._renewed: list[Grant] = []  # for samplers that hold a credit already, such as restarted ones
        self._mean_seconds = 0.0  # from a grant to the arrival of the item

    @property
    def waiting(self) -> int:
        """Number of samplers that wait for a credit."""
        return len(self._waiting)

    @property
    def collecting(self) -> int:
        """Number of samplers that hold a credit."""
        return len(self._granted)

    def request(self, sampler: str, *grants: Grant) -> None:
        """Makes `sampler` wait for a credit, unless it holds one. A repeated request keeps its place."""
        if sampler in self._granted:
            self._granted[sampler] = self._clock()
            self._renewed += grants
        else:
            self._waiting.setdefault(sampler, []).extend(grants)

    def spend(self, sampler: str) -> None:
        """Takes the credit of `sampler`, whose item has arrived."""
        granted = self._granted.pop(sampler, None)
        if granted is not None:
            seconds = self._clock() - granted
            self._mean_seconds += _WEIGHT * (seconds - self._mean_seconds) if self._mean_seconds else seconds

    def grant(self, queued: int) -> list[Grant]:
        """Returns the grants to call now, without a lock. `queued`: number of queued items."""
        grants, self._renewed = self._renewed, []
        # End leases only when credits are short.
        if self._waiting and not self._has_room(queued):
            self._end_leases()
        while self._waiting and self._has_room(queued):
            grants += self._start(next(iter(self._waiting)))
        return grants

    def close(self) -> list[Grant]:
        """Returns all grants, and sets no limit from now on."""
        self.limit = None
        return self.grant(0)

    def _has_room(self, queued: int) -> bool:
        return self.limit is None or len(self._granted) + queued < self.limit

    def _start(self, sampler: str) -> list[Grant]:
        self._granted[sampler] = self._clock()
        return self._waiting.pop(sampler)

    def _end_leases(self) -> None:
        lease = max(LEASE_SECONDS, LEASE_COLLECTIONS * self._mean_seconds)
        expired = self._clock() - lease
        for sampler in [sampler for sampler, granted in self._granted.items() if granted < expired]:
            del self._granted[sampler]
