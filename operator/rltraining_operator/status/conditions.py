"""Implements conditions as in KEP-1623: one per type. Unknown types are kept, and a transition time
changes only with its status."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from rltraining_api.contract import ReportedCondition
from rltraining_api.status import Condition

from rltraining_operator.failures.pod_failure import REASON
from rltraining_operator.status.bounds import CONDITION_BYTES_MAX, MESSAGE_BYTES_MAX, REPORTED_BYTES_MAX, clip

State = Literal["True", "False", "Unknown"]
MANAGED_CONDITION_TYPES = (
    "Suspended",
    "Ready",
    "Restarting",
    "Progressing",
    "ReplicaFailure",
    "SamplersUpdated",
    "OperatorConflict",
    "SuccessCriteriaMet",
    "FailureTarget",
    "Complete",
    "Failed",
)
OTHERS_MAX = 8
"""Maximum number of conditions of a job that are not managed by the operator, so that a learner can
add one."""
TYPE = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_.]{0,62}")
"""A type that a learner may report. Managed fields of an object contain the types of its conditions
as keys."""


@dataclass(frozen=True)
class Conditions:
    """The conditions of a job, for one generation of its spec at one time."""

    items: tuple[Condition, ...]
    generation: int
    now: datetime

    def get(self, kind: str) -> Condition | None:
        """Returns the condition of this type, or None."""
        return next((condition for condition in self.items if condition.type == kind), None)

    def true(self, kind: str) -> bool:
        """Returns whether the condition is true."""
        condition = self.get(kind)
        return condition is not None and condition.status == "True"

    def set(self, kind: str, holds: bool | State, reason: str, message: str = "") -> Conditions:
        """Returns the conditions with this one set. The transition time changes only with the
        status."""
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
        items = [new if condition.type == kind else condition for condition in self.items]
        return replace(self, items=(*items, *([] if old else [new])))

    def lift(self, reported: Iterable[ReportedCondition]) -> Conditions:
        """Returns the conditions with the conditions of a learner's report, as far as there is
        room. A learner cannot set types that the operator manages."""
        lifted = self
        for condition in reported:
            kind = condition.type
            others = {known.type for known in lifted.items}.difference(MANAGED_CONDITION_TYPES)
            fits = kind in others or len(others) < OTHERS_MAX
            if TYPE.fullmatch(kind) and kind not in MANAGED_CONDITION_TYPES and fits:
                reason = condition.reason if REASON.fullmatch(condition.reason) else "Reported"
                lifted = lifted.set(kind, condition.status, reason, condition.message)
        return lifted

    @staticmethod
    def _room(kind: str) -> int:
        if kind not in MANAGED_CONDITION_TYPES:
            return REPORTED_BYTES_MAX
        return CONDITION_BYTES_MAX.get(kind, MESSAGE_BYTES_MAX)


def operator_conflict(
    conditions: Conditions, operators: tuple[str, ...] | None, runner: str = ""
) -> Conditions:
    """Reports that several operators serve the job, and which of them runs it. Keeps an earlier report until
    it is known that there is only one. Pure, so that all of these operators write the same."""
    if operators:
        several = " and ".join(operators)
        runs = f", and only {runner}, the oldest of them, runs it" if runner else ""
        message = f"operators {several} serve this job{runs}: give each release its own watchNamespaces"
        return conditions.set("OperatorConflict", True, "OperatorConflict", message)
    if operators is not None and conditions.get("OperatorConflict"):
        return conditions.set("OperatorConflict", False, "OneOperator")
    return conditions
