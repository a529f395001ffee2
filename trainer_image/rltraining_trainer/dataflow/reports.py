"""Reports of samplers, replay pods and other learners to learner 0: their counters, and the address of their shard.

The answer contains newer parameters and the insertion limit of the shard. A shard at its limit receives a delayed answer, which
blocks the sampler.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rltraining_trainer.dataflow.fields import field
from rltraining_trainer.dataflow.model_server import WANTS_NONE, ModelServer
from rltraining_trainer.dataflow.moments import NO_MOMENTS, moments_field
from rltraining_trainer.transport import DeferredReply, Handler, Payload

HOLD_SECONDS = 1.0
"""Maximum delay of an answer in seconds, so that the sender reports again and does not count as lost."""
REFUSALS = 2
"""Number of refused answers after which a pass ends. With hundreds of samplers, more would take longer than an update."""


class Report(NamedTuple):
    """One report. Counters are totals of the sending process, so that the next report replaces a lost one."""

    incarnation: str
    sequence: int
    version: int
    """Version of the sender's parameters. WANTS_NONE if it has none."""
    steps: int
    """Environment steps taken."""
    episodes: int
    """Episodes that ended."""
    returns: Tensor
    """``[K]`` returns of episodes for the stop rules, since the last report."""
    moments: Tensor
    """``[U, 1 + 2·d]`` float64, moments of the observations since the last report. May be empty."""
    refresh: bool
    """Whether the answer should contain newer parameters."""
    shard: dict[str, Any] | None
    """If the sender keeps a shard: ``ReplayShard.describe`` and the ``url`` where it is served."""


class StatsDelta(NamedTuple):
    """The additions of one report, or of this learner, to the counters."""

    steps: int
    """Environment steps."""
    returns: Tensor
    """``[K]`` undiscounted returns of ended episodes for stop rules (see ``EpisodeTracker``)."""
    episodes: int
    """Number of episodes that ended."""
    lag: int | None
    """Number of versions by which the acting policy was older than the newest one."""
    late: bool = False
    """Whether it includes steps from before this learner's start, which do not count for the current rate."""
    moments: Tensor = NO_MOMENTS
    """``[U, 1 + 2·d]``, see ``Report``."""


class _Counted(NamedTuple):
    incarnation: str
    sequence: int
    steps: int
    episodes: int


@dataclass(frozen=True)
class _Waiting:
    deferred: DeferredReply
    sender: str
    report: Report
    until: float


class StepCounters:
    """Counters of a process that reports them. One thread may add while another takes."""

    def __init__(self) -> None:
        self.news = False
        """Whether something was added since the last `take`."""
        self._steps = self._episodes = 0
        self._returns: list[Tensor] = []
        self._moments: list[Tensor] = []
        self._lock = threading.Lock()

    def add(self, steps: int, episodes: int, returns: Tensor, *moments: Tensor) -> None:
        with self._lock:
            self.news = True
            self._steps += steps
            self._episodes += episodes
            self._returns.append(returns)
            self._moments += [one for one in moments if one.numel()]

    def take(self) -> dict[str, Any]:
        """Returns the fields of a report: totals of steps and episodes, new returns and moments."""
        with self._lock:
            self.news = False
            returns, self._returns = torch.cat([torch.zeros(0), *self._returns]), []
            moments, self._moments = torch.cat(self._moments) if self._moments else NO_MOMENTS, []
            counts = {"steps": self._steps, "episodes": self._episodes, "returns": returns}
        return {"moments": moments, **counts}


class SamplerReports:
    """Answers the services "report/push" and "report/pull" on RPC threads. The learner's loop calls the rest.

    Both answers are ``{"version": int, "parameters": Tensor [N] | None, "done": bool, "samplers": int,
    "limit": int | None}``.

    Args:
        announce: receives the keeper of a shard, the description of the shard, and whether it has served a previous learner.
        limit: returns the number of insertions that a keeper's shard may have by now. None: no limit.
        samplers: returns the number of samplers of the job, for the answers.
        ignores_earlier: whether a start without a checkpoint ignores steps from before it.
        clock: returns seconds.
    """

    def __init__(
        self,
        models: ModelServer,
        announce: Callable[[str, dict[str, Any], bool], None] = lambda keeper, shard, served_before: None,
        limit: Callable[[str], int | None] = lambda keeper: None,
        samplers: Callable[[], int] = lambda: 0,
        ignores_earlier: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.models = models
        """The parameters that samplers receive."""
        self._announce = announce
        self._limit = limit
        self._samplers = samplers
        self._ignores_earlier = ignores_earlier
        self._clock = clock
        self._lock = threading.Lock()
        self._heard: set[str] = set()
        self._counted: dict[str, _Counted] = {}
        self._news: list[StatsDelta] = []
        self._waiting: list[_Waiting] = []
        self._done = False

    @property
    def services(self) -> Mapping[str, Handler]:
        return {"report/push": self.report, "report/pull": self.pull}

    def report(self, sender: str, payload: Payload) -> Payload | DeferredReply:
        """Raises TypeError, naming the field, if ``payload`` is not a report."""
        report = _read(payload)
        with self._lock:
            late = report.sequence > 1 and sender not in self._heard
            self._heard.add(sender)
            # Count the steps first: the items of a shard are never visible before their steps.
            self._count(sender, report, late)
        if report.shard is not None:
            self._announce(sender, report.shard, late)
        answer = self._answer(sender, report)
        if answer is not None:
            return answer
        deferred = DeferredReply()
        if not self._wait(_Waiting(deferred, sender, report, self._clock() + HOLD_SECONDS)):
            return self._answer(sender, report, overdue=True)
        return deferred

    def pull(self, sender: str, payload: Payload) -> Payload:
        """Raises TypeError, naming the field, if ``payload`` is not a pull."""
        version = field(payload, "version", int)
        return self._parameters(version, self._limit(sender))

    def take(self) -> list[StatsDelta]:
        """Returns the additions since the last call."""
        with self._lock:
            news, self._news = self._news, []
        return news

    def release(self) -> None:
        """Sends delayed answers to senders below their limit, and answers that were delayed for long. Call it often.

        All senders wait for the learner's samples. After a few refusals the others wait for the next call.
        """
        with self._lock:
            waiting, self._waiting = self._waiting, []
        now, refused, left = self._clock(), list[_Waiting](), list[_Waiting]()
        for one in waiting:
            overdue = one.until <= now
            if len(refused) == REFUSALS and not overdue and not self._done:
                left.append(one)
            elif (answer := self._answer(one.sender, one.report, overdue=overdue)) is not None:
                one.deferred.resolve(answer)
            else:
                refused.append(one)
        for one in left + refused:
            if not self._wait(one):
                one.deferred.resolve(self._answer(one.sender, one.report, overdue=True))

    def finish(self) -> None:
        """Reports the end of the run with all answers from now on, and sends the delayed ones."""
        with self._lock:
            self._done = True
        self.release()

    def get_state(self) -> dict[str, Any]:
        with self._lock:
            return {
                "counted": {name: tuple(counted) for name, counted in self._counted.items()},
                "news": [list(news) for news in self._news],
            }

    def set_state(self, state: dict[str, Any]) -> None:
        """Continues from a state. Live samplers report their later counts again."""
        self._counted = {name: _Counted(*counted) for name, counted in state["counted"].items()}
        self._news = [StatsDelta(*news) for news in state["news"]]
        self._ignores_earlier = False

    def _wait(self, one: _Waiting) -> bool:
        """Delays an answer. Returns False if the run has ended meanwhile."""
        with self._lock:
            if not self._done:
                self._waiting.append(one)
            return not self._done

    def _count(self, sender: str, report: Report, late: bool) -> None:
        known = self._counted.get(sender)
        if known is None or known.incarnation != report.incarnation:
            known = _Counted(report.incarnation, 0, 0, 0)
        if report.sequence <= known.sequence:  # a repeated report, since the answer was lost
            return
        self._counted[sender] = _Counted(report.incarnation, report.sequence, report.steps, report.episodes)
        if late and self._ignores_earlier:
            return
        self._news.append(
            StatsDelta(
                report.steps - known.steps,
                report.returns,
                report.episodes - known.episodes,
                None if report.version == WANTS_NONE else self.models.version - report.version,
                late,
                report.moments,
            )
        )

    def _answer(self, sender: str, report: Report, *, overdue: bool = False) -> dict[str, Any] | None:
        """Returns the answer, or None if it should be delayed."""
        limit = None
        if report.shard is not None:
            limit = self._limit(sender)
            full = limit is not None and report.shard["counts"][0] >= limit
            if full and not (overdue or self._done):
                return None
        return self._parameters(report.version if report.refresh else WANTS_NONE, limit)

    def _parameters(self, version: int, limit: int | None) -> dict[str, Any]:
        newest, parameters = self.models.newer_than(version)
        return {
            "version": newest,
            "parameters": parameters,
            "done": self._done,
            "samplers": self._samplers(),
            "limit": limit,
        }


def _read(payload: Payload) -> Report:
    shard = payload.get("shard") if isinstance(payload, dict) else None
    return Report(
        field(payload, "incarnation", str),
        field(payload, "sequence", int),
        field(payload, "version", int),
        field(payload, "steps", int),
        field(payload, "episodes", int),
        field(payload, "returns", torch.Tensor),
        moments_field(payload),
        not isinstance(payload, dict) or payload.get("refresh") is not False,
        None if shard is None else field(payload, "shard", dict),
    )
