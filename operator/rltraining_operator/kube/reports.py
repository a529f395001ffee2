"""What learners say of themselves, asked for in the background: a learner that does not answer holds up no pass."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from pydantic import ValidationError
from rltraining_api.contract import HTTP_PORT, STATUS_PATH, LearnerReport

from rltraining_operator import http
from rltraining_operator.cluster import Awaited, Key
from rltraining_operator.observed import Pod

ANSWER_SECONDS = 2.0
"""A learner that takes longer does not answer."""
FRESH_SECONDS = 1.0
"""An answer of this age is not asked for again: the pass that it brings about uses it."""
OLD_SECONDS = 30.0
"""An answer of this age tells nothing of now: this operator did not lead, or stood still."""
PARALLEL = 128
FORGET_SECONDS = 600.0

log = logging.getLogger(__name__)


@dataclass
class _Learner:
    report: LearnerReport | None = None
    heard: float = float("-inf")
    """When the question was over, answered or not; monotonic seconds."""
    asking: asyncio.Task[None] | None = None
    unread: bool = False
    """Whether it is news that no pass has seen. Asked again when that pass comes late, it would say what only the next
    one uses, and so on: each would use what is old."""

    @property
    def age(self) -> float:
        """Seconds since the question was over."""
        return time.monotonic() - self.heard


class Reports:
    """The newest report of each learner, by the uid of its pod."""

    def __init__(self) -> None:
        self.mark: Callable[[Key], None] = lambda key: None
        """Told which job's learner has answered."""
        self._learners: dict[str, _Learner] = {}
        self._slots = asyncio.Semaphore(PARALLEL)

    def newest(self, pod: Pod, token: str) -> LearnerReport | Awaited | None:
        """What it said last; None when it did not answer. Asks again, in the background, when that is a while ago."""
        learner = self._learners.setdefault(pod.uid, _Learner())
        unread, learner.unread = learner.unread, False
        if learner.asking is None and not unread and learner.age > FRESH_SECONDS:
            learner.asking = asyncio.create_task(self._ask(learner, pod, token))
        return learner.report if unread or learner.age <= OLD_SECONDS else "awaited"

    async def _ask(self, learner: _Learner, pod: Pod, token: str) -> None:
        metadata, was_awaited = pod.raw["metadata"], learner.age > OLD_SECONDS
        try:
            async with self._slots:
                report = await _ask(pod, token)
        finally:
            learner.heard, learner.asking = time.monotonic(), None
        news = learner.unread = was_awaited or report != learner.report
        learner.report = report
        self._forget()
        if news:
            self.mark(Key(metadata["namespace"], metadata["ownerReferences"][0]["name"]))

    def _forget(self) -> None:
        """Pods that nobody asked for lately are gone."""
        old = time.monotonic() - FORGET_SECONDS
        for uid in [
            uid for uid, learner in self._learners.items() if learner.heard < old and not learner.asking
        ]:
            del self._learners[uid]


async def _ask(pod: Pod, token: str) -> LearnerReport | None:
    address = (pod.raw.get("status") or {}).get("podIP")
    if not address:
        return None
    headers = {"Authorization": f"Bearer {token}"}
    response = await http.get(
        address, HTTP_PORT, STATUS_PATH, headers=headers, timeout_seconds=ANSWER_SECONDS
    )
    if response is None or response.status != 200:
        return None
    try:
        return LearnerReport.model_validate(json.loads(response.body), extra="ignore")
    except (ValidationError, ValueError, RecursionError) as error:
        log.warning("%s: its report cannot be read: %s", pod.name, error)
        return None
