"""Credits, which samplers need to collect items. They bound policy lag for any number of samplers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

HOLD_SECONDS = 15.0
"""A sampler that has waited for this time must request its credit again, which shows that it is alive."""
ABSENT_SECONDS = 5.0
"""A sampler that does not request its credit again within this time loses its place."""
LEASE_SECONDS = 5.0
"""Shortest lease of a credit. A frozen or dead sampler may hold a credit for this time."""
LEASE_COLLECTIONS = 10.0
"""The lease of a credit, as a multiple of the mean time in which samplers collect an item."""
FIRST_LEASE_SECONDS = 60.0
"""The lease of a credit as long as no item has arrived."""
LOOK_SECONDS = 0.25
"""Time between two checks of leases and of waiting samplers."""
_WEIGHT = 0.05  # weight of the newest collection in that mean

Reply = Callable[[bool], None]
"""Answers a sampler that waits for a credit: whether it has one now, or should request it again."""


@dataclass
class _Request:
    replies: list[Reply]
    since: float
    """Time of this request. Without replies: time when the sampler was asked to repeat it."""


class Credits:
    """Hands out at most `limit` credits, first come, first served. Not thread-safe.

    A credit is in use while its sampler collects an item, and then while the item is queued. Items are used in the
    order of their arrival, so that an item waits for fewer than `limit` others.

    A sampler holds at most one credit. A restarted sampler takes over the credit of its previous incarnation. A
    credit is leased: if its sampler sends no item in time, the credit goes to another sampler.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit: int | None = None
        """None: no limit."""
        self._clock = clock
        self._waiting: dict[str, _Request] = {}  # by sampler, in the order of their first requests
        self._granted: dict[str, float] = {}  # start times of samplers that collect, oldest first
        self._late: dict[str, float] = {}  # the same after the end of their lease
        self._replies: list[Callable[[], None]] = []
        self._mean_seconds: float | None = None  # mean time from a grant to the arrival of the item
        self._next_look = 0.0

    @property
    def waiting(self) -> int:
        """Number of samplers that wait for a credit."""
        return len(self._waiting)

    @property
    def collecting(self) -> int:
        """Number of samplers that hold a credit."""
        return len(self._granted)

    def request(self, sampler: str, *replies: Reply) -> None:
        """Makes `sampler` wait for a credit, unless it holds one. A repeated request keeps its place."""
        now = self._clock()
        if sampler in self._granted:
            self._grant(sampler, list(replies), now)
        elif (request := self._waiting.get(sampler)) is None:
            self._waiting[sampler] = _Request(list(replies), now)
        else:
            request.since = request.since if request.replies else now
            request.replies += replies

    def spend(self, sampler: str) -> None:
        """Takes the credit of `sampler` when its item arrives."""
        granted, late = self._granted.pop(sampler, None), self._late.pop(sampler, None)
        if (since := late if granted is None else granted) is not None:
            seconds = self._clock() - since
            mean = seconds if self._mean_seconds is None else self._mean_seconds
            self._mean_seconds = mean + _WEIGHT * (seconds - mean)

    def take(self, queued: int) -> list[Callable[[], None]]:
        """Hands out free credits. Returns the replies to send now, without a lock. `queued`: number of queued items."""
        now = self._clock()
        looks = now >= self._next_look
        if looks:
            self._next_look = now + LOOK_SECONDS
            self._end_leases(now)
        while self._waiting and (self.limit is None or len(self._granted) + queued < self.limit):
            sampler = next(iter(self._waiting))
            self._grant(sampler, self._waiting.pop(sampler).replies, now)
        if looks:
            self._hold_back(now)
        replies, self._replies = self._replies, []
        return replies

    def close(self) -> list[Callable[[], None]]:
        """Removes the limit. Returns the replies to all waiting samplers."""
        self.limit = None
        return self.take(0)

    def _grant(self, sampler: str, replies: list[Reply], now: float) -> None:
        self._granted.pop(sampler, None)
        self._late.pop(sampler, None)
        self._granted[sampler] = now
        self._replies += [partial(reply, True) for reply in replies]

    def _end_leases(self, now: float) -> None:
        """Takes away the credits with expired leases."""
        mean = self._mean_seconds
        lease = FIRST_LEASE_SECONDS if mean is None else max(LEASE_SECONDS, LEASE_COLLECTIONS * mean)
        while self._granted:
            sampler, granted = next(iter(self._granted.items()))
            if granted >= now - lease:
                break
            self._late[sampler] = self._granted.pop(sampler)

    def _hold_back(self, now: float) -> None:
        """Asks samplers to request again after a long wait, and removes absent ones."""
        for sampler, request in list(self._waiting.items()):
            if request.replies and request.since <= now - HOLD_SECONDS:
                self._replies += [partial(reply, False) for reply in request.replies]
                request.replies, request.since = [], now
            elif not request.replies and request.since <= now - ABSENT_SECONDS:
                del self._waiting[sampler]


def send_replies(replies: Iterable[Callable[[], None]]) -> None:
    """Sends replies. Call this without a lock, since a reply may take other locks."""
    for reply in replies:
        reply()
