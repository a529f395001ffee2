"""Synchronous gradients: each sampler computes one with the same parameters, and waits for the update."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from rltraining_trainer.dataflow.credits import Reply, send_replies
from rltraining_trainer.dataflow.gradients.accounts import Answer, Entry, GradientSource, P, Place
from rltraining_trainer.dataflow.gradients.stragglers import StragglerPolicy

_ALL_GONE = 10
"""Number of deadlines without a gradient after which an iteration ends, if samplers wait for the next one."""


class SynchronousGradients(GradientSource[P]):
    """Collects one gradient of each sampler for each place.

    An *iteration* is the time between two rollouts: all its samplers contribute to at most ``exchanges`` updates. A sampler
    that arrives during the first update takes part. Later arrivals wait for the next iteration. A gradient of another
    place is refused.

    Args:
        exchanges: number of updates in an iteration.
        patience: determines the samplers for which an update waits.
        deadline: seconds for which an update waits for further gradients after the first one.
        count: number of gradients that are enough. None: one gradient of each sampler for which the update waits.
        clock: returns seconds.
    """

    def __init__(
        self,
        exchanges: int,
        patience: StragglerPolicy,
        deadline: float,
        *,
        count: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self.exchanges, self.next_exchanges = exchanges, exchanges
        """Number of updates of this iteration, and of later ones."""
        self._patience, self._deadline, self._count = patience, deadline, count
        self._clock = clock
        self._entries: dict[str, Entry[P]] = {}  # entries of this place, by sender
        self._in_use: list[Entry[P]] = []  # between take and release
        self._since: float | None = None  # arrival of the first entry
        self._awaited = patience.awaited(0)
        self._next = self.place
        self._busy = False  # during an update, after which arrivals are handled
        self._arrived: list[_Arrival] = []
        self._waiting: list[_Arrival] = []  # arrivals that wait for the next iteration
        self._waiting_since: float | None = None
        self._sum = _Sum()

    def push(self, push: P, answer: Answer) -> None:
        with self._changed:
            news = self._is_news(push.source)
            take = partial(self._take_in, push, answer) if news else partial(self._take_again, push, answer)
            self._arrive(_Arrival(push.source.sender, take, gradients=int(news)))
        super().release()

    def join(self, sender: str, answer: Reply, rollout: Place | None = None) -> None:
        with self._changed:
            self._arrive(_Arrival(sender, partial(self._take_up, sender, answer, rollout)))
        super().release()

    def add(self, sender: str, place: Place, part: Tensor, answer: Callable[[Tensor | None], None]) -> None:
        """Adds up ``part`` over all samplers of the iteration of ``place``.

        ``answer`` receives the sum when all parts have arrived, or None if that iteration is over. A late sampler receives the
        sum of the others.
        """
        with self._changed:
            current = place.is_same_rollout(self.place) and not self._closed
            total = self._sum.total if current else None
            if current and total is None:
                self._sum.parts[sender] = part
                self._sum.since = self._sum.since or self._clock()
                self._sum.answers.append(answer)
                self._changed.notify_all()
                return
        answer(total)

    def is_ready(self, timeout: float) -> bool:
        until = self._clock() + timeout
        while True:
            with self._changed:
                now = self._clock()
                sums = self._add_up(now)
                if self._all_are_gone(now):
                    sums += self._begin(self._following(over=True))
                ready = self._is_complete(now)
                over = ready or self._closed or until <= now
                if not (over or sums or (self._answers and self._hands_out)):
                    self._changed.wait(max(0.0, min(until, *self._deadlines(until)) - now))
            send_replies(sums)
            super().release()
            if over:
                return ready

    def take(self) -> list[P]:
        """Returns the gradients of this place, sorted by sender. The next place starts with ``release``."""
        with self._changed:
            used = dict(sorted(self._entries.items()))
            if self._count is None or len(used) < self._count:
                self._patience.on_miss(self._awaited - used.keys(), self.place.iteration)
            self._patience.on_arrival(used)
            self._applied += len(used)
            self._taken = len(used)
            self._in_use = list(used.values())
            self._entries = {}
            self._busy = True
            self._next = self._following(over=self.place.position + 1 >= self.exchanges)
            return [entry.push for entry in used.values()]

    def end_iteration(self) -> None:
        """Makes the update that was just taken the last one of its iteration."""
        with self._changed:
            self._next = self._following(over=True)

    def discard(self) -> None:
        """Drops the gradients that were taken, since their update is not made. Call ``restart`` afterwards."""
        with self._changed:
            self._applied -= len(self._in_use)
            self._drop(self._in_use)
            self._in_use, self._taken = [], 0

    def restart(self, epoch: str) -> None:
        with self._changed:
            self._drop(list(self._entries.values()))
            self._entries = {}
            self._finish_update()
            self._patience.reset()
            self._busy = True
            self._next = Place(epoch)

    def release(self) -> None:
        """Starts the next place."""
        with self._changed:
            self._finish_update()
            sums = self._begin(self._next) if self._busy else []
        send_replies(sums)
        super().release()

    @property
    def begins_rollout(self) -> bool:
        return self._next.position == 0

    @property
    def _hands_out(self) -> bool:
        return super()._hands_out and not self._busy

    def _finish_update(self) -> None:
        """Answers the gradients that were taken with the next release."""
        self._answer_later(self._in_use, used=True)
        self._in_use, self._taken = [], 0

    def _begin(self, place: Place) -> list[Callable[[], None]]:
        """Starts ``place``. Returns answers to samplers that wait for a sum."""
        self.place, self._busy, self._since = place, False, None
        arrived, self._arrived = self._arrived, []
        sums: list[Callable[[], None]] = []
        if place.position == 0:
            self.exchanges = self.next_exchanges
            arrived = self._waiting + arrived
            self._waiting, self._waiting_since = [], None
            sums = [partial(answer, None) for answer in self._sum.answers]
            self._sum = _Sum()
        self._awaited = self._patience.awaited(place.iteration) - {
            arrival.sender for arrival in self._waiting
        }
        for arrival in arrived:
            arrival.take()
        return sums

    def _arrive(self, arrival: _Arrival) -> None:
        if self._busy and not self._closed:
            self._arrived.append(arrival)
        else:
            arrival.take()

    def _take_in(self, push: P, answer: Answer) -> None:
        sender = push.source.sender
        if self._closed or push.place != self.place or not self._knows(push.place.epoch):
            self._refuse(push.source, stale=not self._closed)
            catches_up = push.place.is_same_rollout(self.place)
            self._admit(sender, partial(answer, False), anew=False, catches_up=catches_up)
            return
        if (old := self._entries.get(sender)) is not None:  # a gradient of an earlier incarnation
            self._drop([old])
        self._entries[sender] = Entry(push, [answer])
        self._since = self._since or self._clock()
        self._changed.notify_all()

    def _take_again(self, push: P, answer: Answer) -> None:
        entry = self._entries.get(push.source.sender)
        if entry is not None and entry.push.source == push.source:
            entry.answers.append(answer)
        else:
            used, catches_up = self._was_used(push.source), push.place.is_same_rollout(self.place)
            self._admit(push.source.sender, partial(answer, used), anew=False, catches_up=catches_up)

    def _take_up(self, sender: str, answer: Reply, rollout: Place | None) -> None:
        catches_up = rollout is not None and rollout.is_same_rollout(self.place)
        self._admit(sender, answer, anew=not catches_up, catches_up=catches_up)

    def _admit(self, sender: str, answer: Reply, *, anew: bool, catches_up: bool = False) -> None:
        """Answers now if the sampler can take part: at the first place, or with a rollout of this iteration."""
        if self.place.position == 0 or catches_up or self._closed:
            self._answers.append((sender, answer))
            if anew:
                self._patience.on_restart(sender, self.place.iteration)
                self._awaited = self._patience.awaited(self.place.iteration)
        else:
            self._waiting.append(_Arrival(sender, partial(self._admit, sender, answer, anew=anew)))
            self._awaited.discard(sender)
            self._waiting_since = self._waiting_since or self._clock()
            self._changed.notify_all()

    def _is_complete(self, now: float) -> bool:
        if not self._entries or self._busy:
            return False
        enough = self._count is not None and len(self._entries) >= self._count
        late = self._since is not None and now >= self._since + self._deadline
        return enough or late or self._awaited <= self._entries.keys()

    def _add_up(self, now: float) -> list[Callable[[], None]]:
        """Returns the answers to samplers that wait for the sum, if it is complete or late."""
        parts, since = self._sum.parts, self._sum.since
        if since is None or self._sum.total is not None:
            return []
        missing = self._awaited - parts.keys()
        if missing and now < since + self._deadline:
            return []
        self._patience.on_miss(missing, self.place.iteration)
        self._awaited -= missing
        self._sum.total = total = torch.stack([parts[name] for name in sorted(parts)]).sum(0)
        answers, self._sum.answers = self._sum.answers, []
        return [partial(answer, total) for answer in answers]

    def _all_are_gone(self, now: float) -> bool:
        """Returns whether samplers wait for the next iteration, and none is left to complete this one."""
        if self._waiting_since is None or self._entries or self._busy:
            return False
        return not self._awaited or now >= self._waiting_since + _ALL_GONE * self._deadline

    def _deadlines(self, until: float) -> list[float]:
        """Returns the times of the next checks."""
        since = (self._since, self._sum.since if self._sum.total is None else None)
        times = [moment + self._deadline for moment in since if moment is not None]
        if self._waiting_since is not None and not self._entries:
            times.append(self._waiting_since + _ALL_GONE * self._deadline)
        return times or [until]

    def _following(self, *, over: bool) -> Place:
        place = self.place
        return (
            Place(place.epoch, place.iteration + 1) if over else place._replace(position=place.position + 1)
        )

    def _queued(self) -> int:
        return len(self._entries) + sum(arrival.gradients for arrival in self._arrived)


@dataclass(frozen=True)
class _Arrival:
    """A sampler that is handled later."""

    sender: str
    take: Callable[[], None]
    gradients: int = 0
    """Number of its gradients, which are counted as pushed already."""


@dataclass
class _Sum:
    """A sum over the samplers of one iteration."""

    parts: dict[str, Tensor] = field(default_factory=dict)
    since: float | None = None
    total: Tensor | None = None
    answers: list[Callable[[Tensor | None], None]] = field(default_factory=list)
