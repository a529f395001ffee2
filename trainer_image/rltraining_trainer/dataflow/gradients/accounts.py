"""Counts gradients and unrolls by outcome: every item is used, dropped or queued."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, NamedTuple, TypedDict, TypeVar

from torch import Tensor

from rltraining_trainer.dataflow.credits import Reply, send_replies
from rltraining_trainer.dataflow.moments import NO_MOMENTS
from rltraining_trainer.dataflow.slow_samplers import SlowSamplers
from rltraining_trainer.dataflow.trajectory_queue import Source

Answer = Callable[[bool, bool], None]
"""Answers a push. The arguments are whether its gradient was used or may still be used, and whether there is a credit for the
next gradient."""


class Place(NamedTuple):
    """Identifies parameters. Synchronous samplers receive it with parameters, and return it with gradients."""

    epoch: str
    """The incarnation of the learners. Gradients of another incarnation are refused."""
    iteration: int = 0
    """Number of the rollout. Each sampler makes one per iteration."""
    position: int = 0
    """Number of the update from these rollouts."""

    def is_same_rollout(self, other: Place) -> bool:
        """Returns whether both are updates from the same rollouts."""
        return self[:2] == other[:2]


@dataclass(frozen=True)
class Push:
    """A gradient or an unroll sent by a sampler."""

    source: Source
    place: Place
    version: int
    """Version of the parameters with which it was computed."""


@dataclass(frozen=True)
class GradientPush(Push):
    """One gradient sent by a sampler."""

    gradient: Tensor
    """``[n]`` of this learner's slice of the parameters."""
    weight: float
    """Number of steps in its mean. 1 for a sum."""
    steps: int
    """Environment steps of its rollout, 0 if an earlier gradient has reported them."""
    episodes: int
    """Episodes that ended in these steps."""
    returns: Tensor
    """``[K]`` undiscounted returns of ended episodes (see ``EpisodeTracker``)."""
    terms: dict[str, float]
    """Terms of the loss, for the curves."""
    moments: Tensor = NO_MOMENTS
    """``[U, 1 + 2·d]`` float64 moments of its rollout, sent once. Empty without normalisation."""


@dataclass(frozen=True)
class UnrollPush(Push):
    """One unroll sent by a sampler, from which the learner computes gradients."""

    unroll: dict[str, Any]
    """An ``algorithms.unrolls.Unroll``."""


P = TypeVar("P", bound=Push)


class GradientCounts(NamedTuple):
    """Counts at one moment. Invariant: pushed = applied + dropped + queued."""

    pushed: int
    applied: int
    dropped: int
    queued: int
    stale: int
    """Number of dropped pushes whose parameters were too old."""


class GradientState(TypedDict):
    """The counters in a checkpoint. Queued gradients are not saved."""

    pushed: int
    applied: int
    stale: int
    seen: dict[str, tuple[str, int]]


@dataclass
class Entry(Generic[P]):
    """A queued push, with its answers."""

    push: P
    answers: list[Answer] = field(default_factory=list)


class GradientSource(ABC, Generic[P]):
    """Passes gradients or unrolls from RPC threads to the learner's loop, one update at a time.

        while sources.is_ready(timeout):        pushed = applied + dropped + queued, at all times
            pushes = source.take()
            ... apply them, publish the parameters ...
            source.release()                    answers the senders of these pushes

    A repeated push, whose answer was lost, is ignored.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._pushed = self._applied = self._dropped = self._stale = 0
        self._taken = 0  # applied since the last release, and not in the published parameters yet
        self._seen: dict[str, tuple[str, int]] = {}  # per sender, its incarnation and last sequence number
        self._refused: dict[str, Source] = {}  # per sender, its last refused push
        self._answers: list[tuple[str, Reply]] = []  # answers to these senders, given by the next release
        self._closed = False
        self.slow = SlowSamplers()
        """Asynchronous samplers with gradients that are too old."""
        self.place = Place("")
        """Place of the published parameters. Without an epoch, no parameters are published."""
        self.exchanges = 1
        """Number of pushes of each sampler for its current rollout."""
        self.remaining = 1.0
        """Remaining fraction of the run, from 1 down to 0, set by the learner for samplers' schedules."""

    @abstractmethod
    def push(self, push: P, answer: Answer) -> None:
        """Queues a push. Never blocks. Calls ``answer`` once, without a lock, now or in a later ``release``."""

    @abstractmethod
    def join(self, sender: str, answer: Reply, rollout: Place | None = None) -> None:
        """Calls ``answer`` when ``sender`` may have parameters, with whether it has a credit.

        The sender is new, or reconnects with a rollout that it made at the place ``rollout``.
        """

    @abstractmethod
    def is_ready(self, timeout: float) -> bool:
        """Returns whether there is enough for an update, after at most ``timeout`` seconds."""

    @abstractmethod
    def restart(self, epoch: str) -> None:
        """Drops all pushes, since the parameters have been replaced. Call ``release`` afterwards."""

    @abstractmethod
    def _queued(self) -> int:
        """Returns the number of queued pushes. Called with the lock held."""

    def release(self) -> None:
        """Answers the pushes that were taken, after the parameters were published. Without an epoch it answers nothing."""
        with self._changed:
            if not self._hands_out:
                return
            answers, self._answers = self._answers, []
            replies = self._grant(answers)
        send_replies(replies)

    def close(self) -> None:
        """Drops queued pushes at the end of the run, answers all senders, and refuses later pushes."""
        with self._changed:
            self._closed = True
        self.restart(self.place.epoch)
        self.release()

    def counts(self) -> GradientCounts:
        """Returns all counts of one moment."""
        with self._changed:
            return GradientCounts(self._pushed, self._applied, self._dropped, self._queued(), self._stale)

    def get_state(self) -> GradientState:
        """Returns the counters. Before ``release`` they do not include the update."""
        with self._changed:
            return {
                "pushed": self._pushed,
                "applied": self._applied - self._taken,
                "stale": self._stale,
                "seen": dict(self._seen),
            }

    def set_state(self, state: GradientState) -> None:
        """Continues from a checkpoint. Pushes that were applied since then count as dropped, and queued ones after the
        next ``restart``."""
        with self._changed:
            self._pushed = max(self._pushed, state["pushed"])
            self._applied = state["applied"]
            self._stale = max(self._stale, state["stale"])
            self._dropped = self._pushed - self._applied - self._queued()
            self._seen = {
                sender: (incarnation, last) for sender, (incarnation, last) in state["seen"].items()
            } | self._seen

    def check_valid(self) -> None:
        """Raises AssertionError if the counts do not add up."""
        counts = self.counts()
        assert min(counts) >= 0, f"a count is negative: {counts}"
        assert counts.pushed == counts.applied + counts.dropped + counts.queued, (
            f"they do not add up: {counts}"
        )

    @property
    def begins_rollout(self) -> bool:
        """Whether the next gradients belong to new rollouts."""
        return True

    @property
    def _hands_out(self) -> bool:
        """Whether there are parameters for answers."""
        return bool(self.place.epoch) or self._closed

    def _knows(self, epoch: str) -> bool:
        """Returns whether this is the epoch of the published parameters. False for an empty epoch."""
        return bool(epoch) and epoch == self.place.epoch

    def _is_news(self, source: Source) -> bool:
        """Counts a push. Returns False if it is repeated. Called with the lock held, like the methods below."""
        incarnation, last = self._seen.get(source.sender, ("", -1))
        if incarnation == source.incarnation and source.sequence <= last:
            return False
        self._seen[source.sender] = (source.incarnation, source.sequence)
        self._pushed += 1
        return True

    def _was_used(self, source: Source) -> bool:
        """Returns whether an earlier push was used or may still be used."""
        return self._refused.get(source.sender) != source

    def _refuse(self, source: Source, *, stale: bool) -> None:
        """Counts a push as dropped."""
        self._dropped += 1
        self._stale += stale
        if self._seen.get(source.sender) == (source.incarnation, source.sequence):
            self._refused[source.sender] = source

    def _drop(self, entries: Sequence[Entry[P]], *, stale: bool = False) -> None:
        """Drops pushes, and answers them with the next release."""
        for entry in entries:
            self._refuse(entry.push.source, stale=stale)
        self._answer_later(entries, used=False)

    def _grant(self, answers: Sequence[tuple[str, Reply]]) -> list[Callable[[], None]]:
        """Gives credits to these senders, since there are parameters. Returns the answers to send now."""
        return [partial(answer, True) for _, answer in answers]

    def _answer_later(self, entries: Sequence[Entry[P]], *, used: bool) -> None:
        for entry in entries:
            self._answers += [(entry.push.source.sender, partial(answer, used)) for answer in entry.answers]
            entry.answers = []
