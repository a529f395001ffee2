"""What samplers that push no data tell the learner: how much they have done, and where their shard is.

The answer brings newer parameters, and says how far the sampler may go on. While it may not, the answer is deferred, which
holds the sampler back.
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
"""Seconds after which a deferred answer is given in any case, so that whoever waits is known to live."""
REFUSALS = 2
"""Of those who wait, in one pass: with hundreds of samplers more would take longer than an update."""


class Report(NamedTuple):
    """One report of a sampler. Counts go over its whole life: a report that is lost is made good by the next."""

    incarnation: str
    sequence: int
    version: int
    """Of the parameters that acted; WANTS_NONE of those who keep none."""
    steps: int
    """Environment steps taken."""
    episodes: int
    """Episodes that ended."""
    returns: Tensor
    """``[K]`` of those that count and have ended since the last report."""
    moments: Tensor
    """``[U, 1 + 2·d]`` float64, moments of the observations since the last report. May be empty."""
    shard: dict[str, Any] | None
    """If the sender keeps a shard: ``ReplayShard.describe`` and the ``url`` where it is served."""


class News(NamedTuple):
    """What a report has told that was not known."""

    steps: int
    returns: Tensor
    episodes: int
    lag: int | None
    late: bool
    """It goes back to before this learner began."""
    moments: Tensor
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


class Lived:
    """What somebody who needs no parameters has to report: counts over a whole life, and returns once. One thread may add
    while another takes."""

    def __init__(self) -> None:
        self.news = False
        """Something was added since it was last taken."""
        self._steps = self._episodes = 0
        self._returns: list[Tensor] = []
        self._lock = threading.Lock()

    def add(self, steps: int, episodes: int, returns: Tensor) -> None:
        with self._lock:
            self.news = True
            self._steps += steps
            self._episodes += episodes
            self._returns.append(returns)

    def take(self) -> dict[str, Any]:
        """A report, but for its ``incarnation`` and ``sequence``."""
        with self._lock:
            self.news = False
            returns, self._returns = torch.cat([torch.zeros(0), *self._returns]), []
            counts = {"steps": self._steps, "episodes": self._episodes, "returns": returns}
        return {"version": WANTS_NONE, "shard": None, "moments": NO_MOMENTS, **counts}


class SamplerReports:
    """Answers the services "report" and "pull". RPC threads call them; the learner's loop calls the rest.

    Both are answered with ``{"version": int, "parameters": Tensor [N] | None, "done": bool, "samplers": int,
    "limit": int | None}``.

    Args:
        announce: told of a shard: (its keeper, what the report says of it, whether it has worked for another learner).
        limit: how many insertions into this keeper's shard there may have been by now; None: no limit.
        samplers: how many samplers the job has, of which each is told.
        anew: without a state this learner begins anew: what was done for one before it does not count.
        clock: seconds.
    """

    def __init__(
        self,
        models: ModelServer,
        announce: Callable[[str, dict[str, Any], bool], None] = lambda keeper, shard, lived: None,
        limit: Callable[[str], int | None] = lambda keeper: None,
        samplers: Callable[[], int] = lambda: 0,
        anew: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._models = models
        self._announce = announce
        self._limit = limit
        self._samplers = samplers
        self._anew = anew
        self._clock = clock
        self._lock = threading.Lock()
        self._heard: set[str] = set()
        self._counted: dict[str, _Counted] = {}
        self._news: list[News] = []
        self._waiting: list[_Waiting] = []
        self._done = False

    @property
    def services(self) -> Mapping[str, Handler]:
        return {"report": self.report, "pull": self.pull}

    def report(self, sender: str, payload: Payload) -> Payload | DeferredReply:
        """Raises TypeError, naming the field, if ``payload`` is not a report."""
        report = _read(payload)
        with self._lock:
            late = report.sequence > 1 and sender not in self._heard
            self._heard.add(sender)
        if report.shard is not None:
            self._announce(sender, report.shard, late)
        with self._lock:
            self._count(sender, report, late)
        answer = self._answer(sender, report)
        if answer is not None:
            return answer
        deferred = DeferredReply()
        if not self._wait(_Waiting(deferred, sender, report, self._clock() + HOLD_SECONDS)):
            return self._answer(sender, report, late=True)
        return deferred

    def pull(self, sender: str, payload: Payload) -> Payload:
        """Raises TypeError, naming the field, if ``payload`` is not a pull."""
        return self._parameters(field(payload, "version", int), self._limit(sender))

    def take(self) -> list[News]:
        """What has become known since this was last asked."""
        with self._lock:
            news, self._news = self._news, []
        return news

    def release(self) -> None:
        """Answer those who wait and may go on, or have waited long enough; to be called often.

        All wait for the same, the learner's draws: after a few refusals the others are left for the next time.
        """
        with self._lock:
            waiting, self._waiting = self._waiting, []
        now, refused, left = self._clock(), list[_Waiting](), list[_Waiting]()
        for one in waiting:
            late = one.until <= now
            if len(refused) == REFUSALS and not late and not self._done:
                left.append(one)
            elif (answer := self._answer(one.sender, one.report, late=late)) is not None:
                one.deferred.resolve(answer)
            else:
                refused.append(one)
        for one in left + refused:
            if not self._wait(one):
                one.deferred.resolve(self._answer(one.sender, one.report, late=True))

    def finish(self) -> None:
        """The run is over: every answer says so from now on, and the deferred ones are given at once."""
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
        """Samplers that live still tell what they have done since."""
        self._counted = {name: _Counted(*counted) for name, counted in state["counted"].items()}
        self._news = [News(*news) for news in state["news"]]
        self._anew = False

    def _wait(self, one: _Waiting) -> bool:
        """Whether it waits now: not if the run ended meanwhile."""
        with self._lock:
            if not self._done:
                self._waiting.append(one)
            return not self._done

    def _count(self, sender: str, report: Report, late: bool) -> None:
        known = self._counted.get(sender)
        if known is None or known.incarnation != report.incarnation:
            known = _Counted(report.incarnation, 0, 0, 0)
        if report.sequence <= known.sequence:  # its answer was lost
            return
        self._counted[sender] = _Counted(report.incarnation, report.sequence, report.steps, report.episodes)
        if late and self._anew:
            return
        self._news.append(
            News(
                report.steps - known.steps,
                report.returns,
                report.episodes - known.episodes,
                None if report.version == WANTS_NONE else self._models.version - report.version,
                late,
                report.moments,
            )
        )

    def _answer(self, sender: str, report: Report, *, late: bool = False) -> dict[str, Any] | None:
        """None: it is to wait."""
        limit = None
        if report.shard is not None:
            limit = self._limit(sender)
            full = limit is not None and report.shard["counts"][0] >= limit
            if full and not (late or self._done):
                return None
        return self._parameters(report.version, limit)

    def _parameters(self, version: int, limit: int | None) -> dict[str, Any]:
        newest, parameters = self._models.newer_than(version)
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
        None if shard is None else field(payload, "shard", dict),
    )
