"""Distinguishes a learner that misses single requests from one that does not answer. Pure."""

from __future__ import annotations

from rltraining_api.contract import LearnerReport

from rltraining_operator.cluster import Awaited
from rltraining_operator.observe.answers import BadReport
from rltraining_operator.settings import UNREACHABLE_SECONDS


class SilenceFilter:
    """Turns missing answers of learners that have answered lately into `"awaited"`.

    A learner on a busy machine misses requests. Without this filter a run without progress for a
    minute, because its environments are slow, would be unreachable after each of them.
    """

    def __init__(self) -> None:
        self._answered: dict[str, float] = {}

    def apply(
        self, pod: str, answer: LearnerReport | BadReport | None, now: float
    ) -> LearnerReport | BadReport | Awaited | None:
        """Returns the answer of the pod with this uid, `"awaited"` up to `UNREACHABLE_SECONDS`
        after its last answer, and then None."""
        if answer is not None:
            self._answered[pod] = now
            return answer
        last = self._answered.get(pod)
        return "awaited" if last is not None and now - last < UNREACHABLE_SECONDS else None
