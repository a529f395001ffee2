"""Conditions as KEP-1623 has them: one per type, unknown types kept, times that move only when a status does."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from rltraining_api.contract import ReportedCondition
from rltraining_api.status import Condition

from rltraining_operator.bounds import CONDITION_BYTES_MAX, MESSAGE_BYTES_MAX, REPORTED_BYTES_MAX, clip
from rltraining_operator.failures import REASON

State = Literal["True", "False", "Unknown"]
OURS = (
    "Suspended",
    "Ready",
    "Restarting",
    "Progressing",
    "ReplicaFailure",
    "SuccessCriteriaMet",
    "FailureTarget",
    "Complete",
    "Failed",
)
OTHERS_MAX = 8
"""Conditions of a job that are not the operator's own, so that a learner can add one."""
TYPE = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_.]{0,62}")
"""A type that a learner may report: an object is also stored with the types of its conditions as keys."""


@dataclass(frozen=True)
class Conditions:
    """The conditions of a job, judged by one generation of its spec at one moment."""

    items: tuple[Condition, ...]
    generation: int
    now: datetime

    def get(self, kind: str) -> Condition | None:
        """The condition of this type."""
        return next((condition for condition in self.items if condition.type == kind), None)

    def true(self, kind: str) -> bool:
        """Whether it holds."""
        condition = self.get(kind)
        return condition is not None and condition.status == "True"

    def set(self, kind: str, holds: bool | State, reason: str, message: str = "") -> Conditions:
        """With this condition; its time moves only when its status does."""
        status: State = holds if isinstance(holds, str) else "True" if holds else "False"
        old = self.get(kind)
        new = Condition(
            type=kind,
            status=status,
            reason=reason,
            message=clip(message, self._room(kind)),
            observed_generation=self.generation,
            last_transition_time=old.last_transition_time if old and old.status == status else self.now,
        )
        if old is None:
            return Conditions((*self.items, new), self.generation, self.now)
        return Conditions(
            tuple(new if condition.type == kind else condition for condition in self.items),
            self.generation,
            self.now,
        )

    def lift(self, reported: Iterable[ReportedCondition]) -> Conditions:
        """With the conditions that a learner reports, as far as there is room; the operator's own types are not its to
        set."""
        lifted = self
        for condition in reported:
            kind, others = condition.type, {known.type for known in lifted.items}.difference(OURS)
            fits = kind in others or len(others) < OTHERS_MAX
            if TYPE.fullmatch(kind) and kind not in OURS and fits:
                reason = condition.reason if REASON.fullmatch(condition.reason) else "Reported"
                lifted = lifted.set(kind, condition.status, reason, condition.message)
        return lifted

    @staticmethod
    def _room(kind: str) -> int:
        if kind not in OURS:
            return REPORTED_BYTES_MAX
        return CONDITION_BYTES_MAX.get(kind, MESSAGE_BYTES_MAX)
