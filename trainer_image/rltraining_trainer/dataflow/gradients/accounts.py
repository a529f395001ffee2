"""Counts gradients and unrolls by outcome: every item is used, dropped or queued."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, NamedTuple, TypedDict, TypeVar

from torch import Tensor

from rltraining_trainer.dataflow.moments import NO_MOMENTS
from rltraining_trainer.dataflow.trajectory_queue import Source

Answer = Callable[[bool], None]
"""Answers a push; told whether its gradient was used, or may yet be."""


class Place(NamedTuple):
    """Which parameters are meant. Samplers that learn in step are told it with parameters, and tell it with gradients."""

    epoch: str
    """The life of the learners that made them: what was computed with those of another one is of no use."""
    iteration: int = 0
    """Counts rollouts, of which each sampler makes one."""
    position: int = 0
    """Counts the updates from these rollouts."""


@dataclass(frozen=True)
class Push:
    """A gradient or an unroll sent by a sampler."""

    source: Source
    place: Place
    version: int
    """The parameters it was computed with, from which staleness is measured."""


@dataclass(frozen=True)
class GradientPush(Push):
    """One gradient sent by a sampler."""

    gradient: Tensor
    """``[n]`` of this learner's slice of the parameters."""
    weight: float
    """Of how many steps it is the mean; 1 for a sum."""
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
    """At one moment: pushed = applied + dropped + queued."""

    pushed: int
    applied: int
    dropped: int
    queued: int
    stale: int
    """Of those dropped: refused since the parameters they were computed with are too old."""


class GradientState(TypedDict):
    """What a checkpoint keeps. Gradients that wait are not kept, only that they came."""

    pushed: int
    applied: int
    stale: int
    seen: dict[str, tuple[str, int]]


@dataclass
class Entry(Generic[P]):
    """A gradient that waits, and whom to tell what became of it."""

    push: P
    answers: list[Answer] = field(default_factory=list)


class GradientSource(ABC, Generic[P]):
    """Passes gradients or unrolls from RPC threads to the learner's loop, one update at a time.

        while sources.is_ready(timeout):        pushed = applied + dropped + queued, at all times
            pushes = source.take()
            ... apply them, publish the parameters ...
            source.release()                    now those who sent them are answered

    A push that is repeated, since its answer was lost, is not taken again.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._pushed = self._applied = self._dropped = self._stale = 0
        self._taken = 0  # of those applied: since the last release, so that parameters do not show it yet
        self._seen: dict[str, tuple[str, int]] = {}  # per sender, its incarnation and last sequence number
        self._refused: dict[str, Source] = {}  # per sender, its last gradient that was of no use
        self._answers: list[Callable[[], None]] = []  # to be given with the next release
        self._closed = False
        self.place = Place("")
        """Of the parameters that are handed out; without an epoch there are none yet."""
        self.exchanges = 1
        """Number of pushes of each sampler for its current rollout."""
        self.remaining = 1.0
        """Remaining fraction of the run, from 1 down to 0, set by the learner for samplers' schedules."""

    @abstractmethod
    def push(self, push: P, answer: Answer) -> None:
        """Take a gradient; never blocks. ``answer`` is called once, without a lock held, now or by a later ``release``."""

    @abstractmethod
    def join(self, sender: str, answer: Callable[[], None], rollout: Place | None = None) -> None:
        """Somebody wants parameters to begin with, or to go on with ``rollout``, which it made at that place, after the
        connection was lost: ``answer`` is called when it may."""

    @abstractmethod
    def is_ready(self, timeout: float) -> bool:
        """Whether there is enough for an update, after at most ``timeout`` seconds."""

    @abstractmethod
    def restart(self, epoch: str) -> None:
        """The parameters are others: what was computed with the old ones is dropped. Then ``release``."""

    @abstractmethod
    def _queued(self) -> int:
        """Gradients that wait. Called with the lock held."""

    def release(self) -> None:
        """The parameters are published: answer those whose gradients were taken. Without an epoch everybody waits on."""
        with self._changed:
            if not self._hands_out:
                return
            answers, self._answers = self._answers, []
        for answer in answers:
            answer()

    def close(self) -> None:
        """The run is over: drop what waits, answer everybody, take nothing any more."""
        with self._changed:
            self._closed = True
        self.restart(self.place.epoch)
        self.release()

    def counts(self) -> GradientCounts:
        """All counts of one moment."""
        with self._changed:
            return GradientCounts(self._pushed, self._applied, self._dropped, self._queued(), self._stale)

    def get_state(self) -> GradientState:
        """Before ``release`` it is that of the parameters before the update."""
        with self._changed:
            return {
                "pushed": self._pushed,
                "applied": self._applied - self._taken,
                "stale": self._stale,
                "seen": dict(self._seen),
            }

    def set_state(self, state: GradientState) -> None:
        """Go on where a checkpoint was: what was applied since then is thereby dropped, and so is all that waits, after
        the next ``restart``."""
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
        """Whether there are parameters to answer with."""
        return bool(self.place.epoch) or self._closed

    def _knows(self, epoch: str) -> bool:
        """Whether it is that of the parameters that are handed out. Who was just answered when they were taken back may send
        gradients without an epoch, which are of none."""
        return bool(epoch) and epoch == self.place.epoch

    def _is_news(self, source: Source) -> bool:
        """Whether this push did not come before; it is counted. Called with the lock held, like what follows."""
        incarnation, last = self._seen.get(source.sender, ("", -1))
        if incarnation == source.incarnation and source.sequence <= last:
            return False
        self._seen[source.sender] = (source.incarnation, source.sequence)
        self._pushed += 1
        return True

    def _was_used(self, source: Source) -> bool:
        """Whether a gradient that came before was used, or may yet be."""
        return self._refused.get(source.sender) != source

    def _refuse(self, source: Source, *, stale: bool) -> None:
        """It is of no use."""
        self._dropped += 1
        self._stale += stale
        if self._seen.get(source.sender) == (source.incarnation, source.sequence):
            self._refused[source.sender] = source

    def _drop(self, entries: Sequence[Entry[P]], *, stale: bool = False) -> None:
        """They are of no use; they are answered with the next release."""
        for entry in entries:
            self._refuse(entry.push.source, stale=stale)
        self._answer_later(entries, used=False)

    def _answer_later(self, entries: Sequence[Entry[P]], *, used: bool) -> None:
        for entry in entries:
            self._answers += [partial(answer, used) for answer in entry.answers]
            entry.answers = []
