"""A bounded queue of unrolls whose producers are held back, not blocked, when it is full."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Generic, NamedTuple, TypedDict, TypeVar

T = TypeVar("T")


class Source(NamedTuple):
    """Where an unroll comes from. `sequence` grows with each unroll of one incarnation of a sender."""

    sender: str
    incarnation: str
    sequence: int


class QueueCounts(NamedTuple):
    """What became of all unrolls that came, at one moment: pushed = used + dropped + queued."""

    pushed: int
    used: int
    dropped: int
    queued: int

    def metrics(self) -> dict[str, float | None]:
        """Returns the points of a run's curves."""
        return {f"unrolls/{name}": count for name, count in self._asdict().items()}


class QueueState(TypedDict):
    """What a checkpoint keeps of a TrajectoryQueue. The queued unrolls are not kept, only that they came."""

    pushed: int
    used: int
    dropped: int
    seen: dict[str, tuple[str, int]]


@dataclass
class _Entry(Generic[T]):
    item: T
    source: Source
    accepted: list[Callable[[], None]] = field(default_factory=list)  # whom to tell; empty once told

    def tell(self) -> list[Callable[[], None]]:
        """Whom to tell, from now on nobody."""
        accepted, self.accepted = self.accepted, []
        return accepted


class TrajectoryQueue(Generic[T]):
    """First in, first out. The first `capacity` unrolls are *accepted*: their producers may go on and make
    the next. With a capacity of 0 that is when the consumer comes for the next one, so has used this one.

    What comes while it is full lies behind them, unaccepted, and its producer waits for the answer. So the
    queue holds at most `capacity` plus one per producer that waits for its answers.

    ``pushed = used + dropped + queued`` at all times, in unrolls. An unroll is pushed as soon as it is here,
    accepted or not, because from then on it is used or dropped by us. What a lost process had queued counts
    as dropped. A repeated push (same source; its answer was lost) is not taken again.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 0:
            raise ValueError(f"the capacity of the trajectory queue must be at least 0, not {capacity}")
        self._capacity = capacity
        self._changed = threading.Condition()
        self._entries: deque[_Entry[T]] = deque()
        self._seen: dict[str, tuple[str, int]] = {}  # per sender, its incarnation and last sequence number
        self._pushed = self._used = self._dropped = 0
        self._closed = False
        self._taken: _Entry[T] | None = None  # in use, and its producer waits for that; with a capacity of 0

    @property
    def pushed(self) -> int:
        return self._pushed

    @property
    def used(self) -> int:
        return self._used

    @property
    def dropped(self) -> int:
        return self._dropped

    def __len__(self) -> int:
        """Unrolls that are queued, accepted or not."""
        return len(self._entries)

    def push(self, item: T, source: Source, accepted: Callable[[], None]) -> None:
        """Queue `item`; never blocks.

        `accepted` is called once, without a lock held: now if there is room, else by the thread that makes
        room. On a closed queue the item is dropped, and accepted at once.
        """
        if self._take(item, source, accepted):
            accepted()

    def get(self, timeout: float | None = None) -> T | None:
        """The oldest item, which counts as used from now on. None after `timeout` seconds, or when closed."""
        self._release()
        with self._changed:
            self._changed.wait_for(lambda: self._entries or self._closed, timeout)
            if not self._entries:
                return None
            entry = self._entries.popleft()
            self._used += 1
            if self._capacity == 0:
                self._taken = entry
                return entry.item
            moved_up = next(islice(self._entries, self._capacity - 1, None), None)
            tell = moved_up.tell() if moved_up else []
        for accepted in tell:
            accepted()
        return entry.item

    def close(self) -> None:
        """Drop what is queued, accept what waits, and take nothing any more. May be called twice."""
        with self._changed:
            self._closed = True
            self._dropped += len(self._entries)
            tell = [accepted for entry in self._entries for accepted in entry.accepted]
            self._entries.clear()
            self._changed.notify_all()
        self._release()
        for accepted in tell:
            accepted()

    def counts(self) -> QueueCounts:
        """All counts of one moment."""
        with self._changed:
            return QueueCounts(self._pushed, self._used, self._dropped, len(self._entries))

    def get_state(self) -> QueueState:
        with self._changed:
            return {
                "pushed": self._pushed,
                "used": self._used,
                "dropped": self._dropped,
                "seen": dict(self._seen),
            }

    def set_state(self, state: QueueState) -> None:
        """Continue the counts of a lost process, whose queued unrolls are thereby dropped.

        Raises:
            ValueError: this queue is in use already.
        """
        with self._changed:
            if self._pushed:
                raise ValueError(
                    f"the trajectory queue cannot be restored: {self._pushed} unrolls came already"
                )
            self._pushed, self._used = state["pushed"], state["used"]
            self._dropped = self._pushed - self._used
            self._seen = {
                sender: (incarnation, last) for sender, (incarnation, last) in state["seen"].items()
            }

    def check_valid(self) -> None:
        """Raises AssertionError, saying which, if an invariant does not hold."""
        with self._changed:
            queued = len(self._entries)
            counts = f"pushed {self._pushed}, used {self._used}, dropped {self._dropped}, queued {queued}"
            assert min(self._used, self._dropped) >= 0, f"a count is negative: {counts}"
            assert self._pushed == self._used + self._dropped + queued, f"unrolls got lost: {counts}"
            assert not (self._closed and queued), f"closed, but not empty: {counts}"
            for place, entry in enumerate(self._entries):
                waits = bool(entry.accepted)
                assert waits == (place >= self._capacity), (
                    f"place {place} of {self._capacity}: waits is {waits}"
                )

    def _take(self, item: T, source: Source, accepted: Callable[[], None]) -> bool:
        """Whether the producer may go on at once."""
        with self._changed:
            if self._is_repeated(source):
                waiting = self._waiting(source)
                if waiting:
                    waiting.accepted.append(accepted)
                return waiting is None
            self._seen[source.sender] = (source.incarnation, source.sequence)
            self._pushed += 1
            if self._closed:
                self._dropped += 1
                return True
            full = len(self._entries) >= self._capacity
            self._entries.append(_Entry(item, source, [accepted] if full else []))
            self._changed.notify()
            return not full

    def _release(self) -> None:
        """What was taken has been used: its producer may go on."""
        with self._changed:
            taken, self._taken = self._taken, None
            tell = taken.tell() if taken else []
        for accepted in tell:
            accepted()

    def _is_repeated(self, source: Source) -> bool:
        incarnation, last = self._seen.get(source.sender, ("", 0))
        return incarnation == source.incarnation and source.sequence <= last

    def _waiting(self, source: Source) -> _Entry[T] | None:
        """The entry of this source, if its producer still waits for an answer."""
        behind = islice(self._entries, self._capacity, None)
        return next((entry for entry in (self._taken, *behind) if entry and entry.source == source), None)
