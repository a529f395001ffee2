"""Gradients in the order in which they come: whoever sends one waits for nobody else."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from functools import partial

from rltraining_trainer.dataflow.gradients.accounts import Answer, Entry, GradientPush, GradientSource, Place


class GradientQueue(GradientSource):
    """First in, first out, ``count()`` gradients an update.

    A gradient is answered when it has been applied, with the parameters it led to. The first ``capacity`` that wait are
    answered at once instead, so that their senders go on: there are never more than that, and one of each sender.

    Args:
        count: gradients an update takes.
        deadline: seconds after which it takes fewer, if the others do not come.
        version: of the parameters, now.
        max_staleness: gradients computed with parameters older by more versions are dropped when their turn comes; None: none.
        clock: seconds.
    """

    def __init__(
        self,
        count: Callable[[], int],
        deadline: float,
        version: Callable[[], int],
        *,
        capacity: int = 0,
        max_staleness: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._count, self._deadline, self._version = count, deadline, version
        self._capacity, self._max_staleness = capacity, max_staleness
        self._clock = clock
        self._entries: deque[tuple[Entry, float]] = deque()  # and when it came

    def push(self, push: GradientPush, answer: Answer) -> None:
        with self._changed:
            used: bool | None = None  # it waits
            if not self._is_news(push.source):
                used = not self._wait_with(push, answer) or None
            elif self._closed or push.place.epoch != self.place.epoch:
                self._dropped += 1
                used = False
            else:
                used = True if len(self._entries) < self._capacity else None
                self._entries.append((Entry(push, [] if used else [answer]), self._clock()))
                self._changed.notify_all()
            if used is not None and not self._hands_out:
                self._answers.append(partial(answer, used))
                return
        if used is not None:
            answer(used)

    def join(self, sender: str, answer: Callable[[], None]) -> None:
        with self._changed:
            if not self._hands_out:
                self._answers.append(answer)
                return
        answer()

    def is_ready(self, timeout: float) -> bool:
        until = self._clock() + timeout
        with self._changed:
            while not self._closed:
                now = self._clock()
                if len(self._entries) >= self._count():
                    return True
                late = self._entries[0][1] + self._deadline if self._entries else until
                if self._entries and late <= now:
                    return True
                if until <= now:
                    break
                self._changed.wait(max(0.0, min(until, late) - now))
            return False

    def take(self) -> list[GradientPush]:
        """The oldest, as many as an update takes; none if all that wait are too old."""
        with self._changed:
            taken: list[Entry] = []
            wanted = self._count()
            while self._entries and len(taken) < wanted:
                entry, _ = self._entries.popleft()
                if (
                    self._max_staleness is not None
                    and self._version() - entry.push.version > self._max_staleness
                ):
                    self._drop([entry], stale=True)
                else:
                    taken.append(entry)
            self._applied += len(taken)
            self._answer_later(taken, used=True)
            for entry, _ in list(self._entries)[: self._capacity]:  # they have moved up
                self._answer_later([entry], used=True)
            return [entry.push for entry in taken]

    def restart(self, epoch: str) -> None:
        with self._changed:
            self._drop([entry for entry, _ in self._entries])
            self._entries.clear()
            self.place = Place(epoch)
            self._changed.notify_all()

    def _wait_with(self, push: GradientPush, answer: Answer) -> bool:
        """Whether the same push waits here, and this answer with it."""
        for entry, _ in self._entries:
            if entry.push.source == push.source and entry.answers:
                entry.answers.append(answer)
                return True
        return False

    def _queued(self) -> int:
        return len(self._entries)
