"""Conditions as KEP-1623 has them: one per type, unknown types kept, times that move only when a status does."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from rltraining_api.contract import ReportedCondition
from rltraining_api.status import Condition

from rltraining_operator.failures import REASON, TEXT_MAX

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
TYPE_MAX, CONDITIONS_MAX = 316, 32
"""Of the schema: characters of a type, and conditions of a job."""


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
            message=message[:TEXT_MAX],
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
        """With the conditions that a learner reports, word for word, as far as there is room; the operator's own types
        are not its to set."""
        lifted = self
        for condition in reported:
            kind, others = condition.type[:TYPE_MAX], {known.type for known in lifted.items}.difference(OURS)
            fits = kind in others or len(others) < CONDITIONS_MAX - len(OURS)
            if kind and kind not in OURS and fits:
                reason = condition.reason if REASON.fullmatch(condition.reason) else "Reported"
                lifted = lifted.set(kind, condition.status, reason, condition.message)
        return lifted
