"""Asynchronous gradients, in the order of their arrival. A sampler blocks on others only if too many gradients are queued."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from rltraining_trainer.dataflow.credits import Credits, Reply, send_replies
from rltraining_trainer.dataflow.gradients.accounts import Answer, Entry, GradientSource, P, Place


class GradientQueue(GradientSource[P]):
    """A first-in, first-out queue with ``count()`` gradients per update.

    A gradient is answered after its update, with the updated parameters. The first ``capacity`` queued gradients are answered
    at once instead. So the queue holds at most ``capacity`` gradients and one more per sender.

    Credits limit how many gradients are under way at a time, that is in the making or queued (see `limit`). Then a sender is
    answered when there is a credit for its next gradient, or after some time without one. It should `request` it then.

    Args:
        count: returns the number of gradients per update.
        deadline: seconds after which an update takes fewer.
        version: returns the current version of the parameters.
        max_lag: largest number of versions by which the parameters of a gradient may be older. None: no limit.
        sliced: other learners receive other slices of the same gradients. A sender then keeps its credit until all learners
            have answered, and for its next gradient unless other senders wait.
        clock: returns seconds.
    """

    def __init__(
        self,
        count: Callable[[], int],
        deadline: float,
        version: Callable[[], int],
        *,
        capacity: int = 0,
        max_lag: int | None = None,
        sliced: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._count, self._deadline, self._version = count, deadline, version
        self._capacity, self._max_lag, self._sliced = capacity, max_lag, sliced
        self._clock = clock
        self._credits = Credits(clock)
        self._entries: deque[tuple[Entry[P], float]] = deque()  # with the times of arrival
        self._in_use: list[Entry[P]] = []  # between take and release
        self._joins: list[Reply] = []  # replies to senders that wait for parameters

    @property
    def lacks_credits(self) -> bool:
        """Whether senders wait for credits."""
        return self._credits.waiting > 0

    def limit(self, under_way: int) -> None:
        """Sets the largest number of gradients in the making or queued, at least 1. At first there is no limit."""
        with self._changed:
            if not self._closed:
                self._credits.limit = under_way

    def push(self, push: P, answer: Answer) -> None:
        with self._changed:
            used: bool | None = None  # the answer is deferred
            if not self._is_news(push.source):
                used = None if self._wait_with(push, answer) else self._was_used(push.source)
            elif self._closed or not self._knows(push.place.epoch):
                self._refuse(push.source, stale=False)
                used = False
            else:
                used = True if len(self._entries) < self._capacity else None
                self._entries.append((Entry(push, [] if used else [answer]), self._clock()))
                if not self._sliced:
                    self._credits.spend(push.source.sender)
                self._changed.notify_all()
            replies = [] if used is None else self._answer_now(push.source.sender, partial(answer, used))
        send_replies(replies)

    def join(self, sender: str, answer: Reply, rollout: Place | None = None) -> None:
        with self._changed:
            if not self._hands_out:
                self._joins.append(answer)
                return
            has_credit = self._credits.limit is None
        answer(has_credit)

    def request(self, sender: str, answer: Reply) -> None:
        """Requests a credit for the next gradient of ``sender``. Calls ``answer`` with whether there is one, like ``push``."""
        with self._changed:
            if not self._hands_out:
                self._joins.append(answer)
                return
            if self._sliced:
                self._credits.spend(sender)
            self._credits.request(sender, answer)
            replies = self._grant([])
        send_replies(replies)

    def is_ready(self, timeout: float) -> bool:
        until = self._clock() + timeout
        while True:
            with self._changed:
                self._drop_stale()
                now = self._clock()
                late = self._entries[0][1] + self._deadline if self._entries else until
                ready = len(self._entries) >= self._count() or bool(self._entries and late <= now)
                over = ready or self._closed or until <= now
                if not (over or (self._answers and self._hands_out)):
                    self._changed.wait(max(0.0, min(until, late) - now))
            if over:
                return ready
            super().release()

    def take(self) -> list[P]:
        """Returns the oldest gradients, for one update, after ``is_ready``."""
        with self._changed:
            self._drop_stale()
            wanted = min(self._count(), len(self._entries))
            taken = [self._entries.popleft()[0] for _ in range(wanted)]
            for entry in taken:
                self.slow.used(entry.push.source.sender)
            self._applied += len(taken)
            self._taken += len(taken)
            self._in_use += taken
            self._move_up()
            return [entry.push for entry in taken]

    def release(self) -> None:
        with self._changed:
            self._taken = 0
            self._answer_later(self._in_use, used=True)
            self._in_use = []
        super().release()

    def restart(self, epoch: str) -> None:
        with self._changed:
            self._drop([entry for entry, _ in self._entries])
            self._entries.clear()
            self._answer_later(self._in_use, used=True)
            self._in_use, self._taken = [], 0
            self.place = Place(epoch)
            self._changed.notify_all()

    def _answer_now(self, sender: str, answer: Reply) -> list[Callable[[], None]]:
        """Answers when there are parameters and a credit. Returns the answers to send now."""
        if self._hands_out:
            return self._grant([(sender, answer)])
        self._answers.append((sender, answer))
        return []

    def _grant(self, answers: Sequence[tuple[str, Reply]]) -> list[Callable[[], None]]:
        if self._closed:
            self._credits.limit = None
        unlimited = self._credits.limit is None
        replies: list[Callable[[], None]] = [partial(join, unlimited) for join in self._joins]
        self._joins = []
        for sender, answer in answers:
            if self._sliced and self._credits.waiting:
                replies.append(partial(answer, False))  # the sender returns its credit with its next request
            else:
                self._credits.request(sender, answer)
        if self._in_use and not unlimited:
            return replies  # credits wait for the release, since newer parameters are near
        queued = 0 if self._sliced else len(self._entries)  # if sliced, their senders have credits
        return replies + self._credits.take(queued)

    def _wait_with(self, push: P, answer: Answer) -> bool:
        """Returns whether the same push is waiting or in use. Adds the answer to its answers."""
        waiting = (entry for entry, _ in self._entries if entry.answers)
        for entry in (*waiting, *self._in_use):
            if entry.push.source == push.source:
                entry.answers.append(answer)
                return True
        return False

    def _drop_stale(self) -> None:
        if self._max_lag is None:
            return
        oldest = self._version() - self._max_lag
        old = [entry for entry, _ in self._entries if entry.push.version < oldest]
        for entry in old:
            self.slow.dropped(entry.push.source.sender)
        self._drop(old, stale=True)
        self._entries = deque(item for item in self._entries if item[0].push.version >= oldest)
        self._move_up()

    def _move_up(self) -> None:
        """Answers gradients that are now among the first ``capacity`` with the next release."""
        self._answer_later([entry for entry, _ in list(self._entries)[: self._capacity]], used=True)

    def _queued(self) -> int:
        return len(self._entries)
