"""Requests the reports of learners in the background, so that a learner that does not answer blocks
no pass."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from rltraining_api.contract import HTTP_PORT, LearnerReport

from rltraining_operator.cluster import Awaited, Key
from rltraining_operator.observe.answers import BadReport
from rltraining_operator.observe.ask import ask_learner
from rltraining_operator.observe.observed import Pod

ANSWER_SECONDS = 2.0
"""Time-out of a request in seconds."""
FRESH_SECONDS = 1.0
"""Up to this age an answer is not requested again: the pass that it triggers uses it."""
OLD_SECONDS = 30.0
"""From this age on an answer is out of date: this operator was not the leader, or was paused."""
BACK_OFF_SECONDS = (20.0, 320.0)
"""The pause after a first invalid report, and the longest pause: each further invalid report
doubles it. A valid report, or no answer, resets it."""
PARALLEL = 128
FORGET_SECONDS = 600.0

log = logging.getLogger(__name__)


@dataclass
class _Learner:
    report: LearnerReport | BadReport | None = None
    bad: int = 0
    """Number of invalid reports in a row."""
    heard: float = float("-inf")
    """When the last request ended, with or without an answer, in monotonic seconds."""
    asking: asyncio.Task[None] | None = None
    unread: bool = False
    """Whether a changed answer has not been used by a pass yet. If the report were requested again
    when a pass is late, each pass would use an answer of the previous request."""

    @property
    def age(self) -> float:
        """Seconds since the request ended."""
        return time.monotonic() - self.heard

    @property
    def old(self) -> bool:
        """Whether the answer is out of date. An invalid report stays current until the next
        request."""
        return self.age > OLD_SECONDS and not self.bad

    @property
    def back_off(self) -> float:
        """The minimum number of seconds from the end of one request to the next."""
        first, longest = BACK_OFF_SECONDS
        return min(first * 2.0 ** min(self.bad - 1, 16), longest) if self.bad else 0.0

    def take(self, answer: LearnerReport | BadReport | None) -> bool:
        """Stores an answer. Returns whether it differs from the previous one."""
        news = answer != self.report
        self.report = answer
        self.bad = self.bad + 1 if isinstance(answer, BadReport) else 0
        return news


class Reports:
    """The newest report of each learner, by the uid of its pod."""

    def __init__(self) -> None:
        self.mark: Callable[[Key], None] = lambda key: None
        """Called with the job whose learner has answered."""
        self._learners: dict[str, _Learner] = {}
        self._slots = asyncio.Semaphore(PARALLEL)

    def newest(self, pod: Pod, token: str) -> LearnerReport | BadReport | Awaited | None:
        """Returns the last answer of the learner, or None if it did not answer. Starts a new
        request in the background if the last one is old enough."""
        learner = self._learners.setdefault(pod.uid, _Learner())
        unread, learner.unread = learner.unread, False
        if learner.asking is None and not unread and learner.age > max(FRESH_SECONDS, learner.back_off):
            learner.asking = asyncio.create_task(self._ask(learner, pod, token))
        return learner.report if unread or not learner.old else "awaited"

    async def _ask(self, learner: _Learner, pod: Pod, token: str) -> None:
        metadata, was_awaited = pod.raw["metadata"], learner.old
        try:
            async with self._slots:
                report = await _ask(pod, token)
        finally:
            learner.heard, learner.asking = time.monotonic(), None
        news = learner.unread = learner.take(report) or was_awaited
        if isinstance(report, BadReport):
            log.warning(
                "%s/%s: its report cannot be read: %s; retrying in %.0f s",
                *(metadata["namespace"], pod.name, report.problem, learner.back_off),
            )
        self._forget()
        if news:
            self.mark(Key(metadata["namespace"], metadata["ownerReferences"][0]["name"]))

    def _forget(self) -> None:
        """Drops the answers of pods that no pass has requested lately: these pods are gone."""
        old = time.monotonic() - FORGET_SECONDS
        for uid in [
            uid for uid, learner in self._learners.items() if learner.heard < old and not learner.asking
        ]:
            del self._learners[uid]


async def _ask(pod: Pod, token: str) -> LearnerReport | BadReport | None:
    address = (pod.raw.get("status") or {}).get("podIP")
    if not address:
        return None
    return await ask_learner(address, HTTP_PORT, token, ANSWER_SECONDS, encrypted=pod.encrypted)
