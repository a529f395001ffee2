"""A bounded queue of unrolls. When it is full it delays the answers to producers, and blocks no thread."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple, TypedDict

from rltraining_trainer.dataflow.credits import Credits, Reply, send_replies
from rltraining_trainer.dataflow.slow_samplers import SlowSamplers


class Source(NamedTuple):
    """Identifies an unroll. `sequence` increases with each unroll of one incarnation of a sender."""

    sender: str
    incarnation: str
    sequence: int


@dataclass(frozen=True)
class Trajectory:
    """One item as a sampler sent it."""

    source: Source
    version: int
    """Version of the sampler's parameters, or WANTS_NONE."""
    item: Any
    """Tensors and plain values, such as an unroll."""


class QueueCounts(NamedTuple):
    """Counts of unrolls at one moment: pushed = used + dropped + queued."""

    pushed: int
    used: int
    dropped: int
    queued: int
    stale: int
    """Dropped unrolls that were too old. `dropped` includes them."""


class QueueState(TypedDict):
    """The counters in a checkpoint. Queued unrolls are not saved."""

    pushed: int
    used: int
    dropped: int
    stale: int
    seen: dict[str, tuple[str, int]]


@dataclass
class _Entry:
    trajectory: Trajectory
    accepted: list[Reply] = field(default_factory=list)  # callbacks that were not called yet


class TrajectoryQueue:
    """A first-in, first-out queue that accepts the first `capacity` unrolls at once.

    The producer of an accepted unroll makes the next one. Further unrolls are queued too, but accepted later, and
    their producers wait for the answer. So the queue holds at most `capacity` unrolls and one more per producer.
    With a capacity of 0 an unroll is accepted when the consumer requests the next one, after it has used this one.

    Credits limit how many unrolls are under way at a time, that is in the making or queued (see `limit`). Then an
    accepted producer is answered when there is a credit for its next unroll, or after some time without one.

    ``pushed = used + dropped + queued`` at all times. An unroll counts as pushed on arrival, accepted or not.
    Queued unrolls of a process that dies count as dropped. A repeated push (same source, since its answer was
    lost) is ignored.
    """

    def __init__(self, capacity: int, clock: Callable[[], float] = time.monotonic) -> None:
        if capacity < 0:
            raise ValueError(f"the capacity of the trajectory queue must be at least 0, not {capacity}")
        self._capacity = capacity
        self._credits = Credits(clock)
        self._changed = threading.Condition()
        self._entries: deque[_Entry] = deque()
        self._seen: dict[str, tuple[str, int]] = {}  # per sender, its incarnation and last sequence number
        self._pushed = self._used = self._dropped = self._stale = 0
        self._closed = False
        self._taken: _Entry | None = None  # the item in use, with a capacity of 0
        self.slow = SlowSamplers()

    @property
    def limited(self) -> bool:
        """Whether producers need a credit for each unroll."""
        return self._credits.limit is not None

    @property
    def crowded(self) -> bool:
        """Whether the unrolls of all producers, two each, could be more than the limit."""
        credits = self._credits
        if credits.limit is None:
            return False
        # Accepted items are not counted, since their producers are counted: they collect or wait for a credit.
        producers = credits.collecting + credits.waiting + max(0, len(self._entries) - self._capacity)
        return 2 * producers > credits.limit

    def limit(self, under_way: int | None) -> None:
        """Sets the largest number of unrolls in the making or queued, at least 1. None: no limit."""
        with self._changed:
            if not self._closed:
                self._credits.limit = under_way

    def push(self, trajectory: Trajectory, accepted: Reply) -> None:
        """Queues `trajectory`. Never blocks.

        Calls `accepted` once, without a lock: now if there is room, otherwise later from the thread that makes
        room. Its argument is whether there is a credit for the next item. Without one, the producer should `request` it.
        A closed queue drops the item and accepts it immediately.
        """
        with self._changed:
            self._take(trajectory, accepted)
            replies = self._credits.take(len(self._entries))
        send_replies(replies)

    def request(self, sender: str, reply: Reply) -> None:
        """Requests a credit for the next item of `sender`. Calls `reply` like `accepted` of `push`."""
        with self._changed:
            self._credits.request(sender, reply)
            replies = self._credits.take(len(self._entries))
        send_replies(replies)

    def get(
        self, timeout: float | None = None, fits: Callable[[Trajectory], bool] = lambda trajectory: True
    ) -> Trajectory | None:
        """Returns the oldest item that `fits`, which counts as used from now on. Earlier ones count as dropped.

        Returns None after `timeout` seconds without an item, or if closed.
        """
        while True:
            self._release()
            with self._changed:
                self._changed.wait_for(lambda: self._entries or self._closed, timeout)
                if not self._entries:
                    return None
                # Take the oldest item.
                entry = self._entries.popleft()
                fitting = fits(entry.trajectory)
                self._used += fitting
                self._dropped += not fitting
                self._stale += not fitting
                (self.slow.used if fitting else self.slow.dropped)(entry.trajectory.source.sender)
                # Accept the item that moves up into the capacity.
                if self._capacity == 0:
                    self._taken = entry
                elif len(self._entries) >= self._capacity:
                    self._accept(next(islice(self._entries, self._capacity - 1, None)))
                replies = self._credits.take(len(self._entries))
            send_replies(replies)
            if fitting:
                return entry.trajectory

    def close(self) -> None:
        """Drops queued items, accepts delayed ones, and drops later ones. May be called twice."""
        with self._changed:
            self._closed = True
            self._dropped += len(self._entries)
            for entry in self._entries:
                self._accept(entry)
            self._entries.clear()
            replies = self._credits.close()
            self._changed.notify_all()
        self._release()
        send_replies(replies)

    def counts(self) -> QueueCounts:
        """Returns all counts of one moment."""
        with self._changed:
            return QueueCounts(self._pushed, self._used, self._dropped, len(self._entries), self._stale)

    def get_state(self) -> QueueState:
        with self._changed:
            return {
                "pushed": self._pushed,
                "used": self._used,
                "dropped": self._dropped,
                "stale": self._stale,
                "seen": dict(self._seen),
            }

    def set_state(self, state: QueueState) -> None:
        """Continues the counts of a process that died, whose queued unrolls count as dropped.

        Raises:
            ValueError: this queue is in use already.
        """
        with self._changed:
            if self._pushed:
                raise ValueError(
                    f"the trajectory queue cannot be restored: it has received {self._pushed} unrolls"
                )
            self._pushed, self._used = state["pushed"], state["used"]
            self._dropped = self._pushed - self._used
            self._stale = state.get("stale", 0)  # a checkpoint of an earlier version has none
            self._seen = {
                sender: (incarnation, last) for sender, (incarnation, last) in state["seen"].items()
            }

    def check_valid(self) -> None:
        """Raises AssertionError if an invariant does not hold."""
        with self._changed:
            queued = len(self._entries)
            counts = f"pushed {self._pushed}, used {self._used}, dropped {self._dropped}, queued {queued}"
            assert min(self._used, self._dropped) >= 0, f"a count is negative: {counts}"
            assert self._pushed == self._used + self._dropped + queued, f"unrolls got lost: {counts}"
            assert self._stale <= self._dropped, f"{self._stale} are stale, but only: {counts}"
            assert not (self._closed and queued), f"closed, but not empty: {counts}"
            for place, entry in enumerate(self._entries):
                waits = bool(entry.accepted)
                assert waits == (place >= self._capacity), (
                    f"place {place} of {self._capacity}: waits is {waits}"
                )

    def _take(self, trajectory: Trajectory, accepted: Reply) -> None:
        """Queues an item, and accepts it if there is room."""
        source = trajectory.source
        if self._is_repeated(source):
            waiting = self._waiting(source)
            if waiting:
                waiting.accepted.append(accepted)
            else:
                self._credits.request(source.sender, accepted)
            return
        self._seen[source.sender] = (source.incarnation, source.sequence)
        self._pushed += 1
        entry = _Entry(trajectory, [accepted])
        self._credits.spend(source.sender)
        if self._closed:
            self._dropped += 1
        else:
            self._entries.append(entry)
            self._changed.notify()
        if self._closed or len(self._entries) <= self._capacity:
            self._accept(entry)

    def _release(self) -> None:
        """Accepts the item in use, with a capacity of 0, and hands out expired credits."""
        with self._changed:
            taken, self._taken = self._taken, None
            if taken:
                self._accept(taken)
            replies = self._credits.take(len(self._entries))
        send_replies(replies)

    def _accept(self, entry: _Entry) -> None:
        """Accepts an item, so that its producer waits only for a credit."""
        if entry.accepted:
            self._credits.request(entry.trajectory.source.sender, *entry.accepted)
            entry.accepted = []

    def _is_repeated(self, source: Source) -> bool:
        incarnation, last = self._seen.get(source.sender, ("", 0))
        return incarnation == source.incarnation and source.sequence <= last

    def _waiting(self, source: Source) -> _Entry | None:
        """Returns the entry of this source if it is not accepted yet."""
        behind = islice(self._entries, self._capacity, None)
        entries = (entry for entry in (self._taken, *behind) if entry)
        return next((entry for entry in entries if entry.trajectory.source == source), None)
