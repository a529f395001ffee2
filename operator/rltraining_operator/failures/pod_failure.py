"""Classifies the failures of pods: their kind, whether they count, and whether the job can
recover."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto

from pydantic import ValidationError
from pydantic_core import from_json, to_json
from rltraining_api.contract import (
    PERMANENT_EXIT_CODES,
    TERMINATION_MESSAGE_BYTES_MAX,
    TRAINER_CONTAINER,
    ExitCode,
    TerminationMessage,
)
from rltraining_api.failure_policy import FailureRule, PodFailurePolicy

from rltraining_operator.observe.pod_view import DISRUPTION_TARGET, Pod, Termination

KILLED_FROM_OUTSIDE = (137, 143)
"""Exit codes of SIGKILL and SIGTERM, which a program does not send to itself."""
SIGNALS = {
    132: "SIGILL",
    134: "SIGABRT",
    135: "SIGBUS",
    136: "SIGFPE",
    137: "SIGKILL",
    139: "SIGSEGV",
    143: "SIGTERM",
}
REASON = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,127}")


class FailureKind(Enum):
    """The kind of a failure, which decides its consequence for the job."""

    DISRUPTION = auto()
    """Caused from outside. The member is restarted and the failure does not count."""
    FAILURE = auto()
    """The member is restarted, and the failure counts against `backoffLimit`."""
    PERMANENT = auto()
    """A restart cannot help, so the job fails."""


@dataclass(frozen=True)
class PodFailure:
    """A failure of a container or of a pod as a whole."""

    pod: str
    container: str = ""
    """Empty for the pod as a whole."""
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    """The unparsed termination message, or the message of the pod."""
    disrupted: bool = False
    """Whether the cluster reports that it removed the pod."""
    deleted: bool = False
    """Whether the pod as a whole is being deleted."""
    conditions: Mapping[str, str] | None = None
    """The status of each of the pod's conditions, by type."""
    note: str = ""
    """Further information for the message."""

    @classmethod
    def of_container(cls, pod: Pod, end: Termination) -> PodFailure:
        return cls(
            pod.name,
            end.container,
            end.exit_code,
            end.reason,
            end.message,
            pod.disrupted,
            conditions=_conditions(pod),
        )

    @classmethod
    def of_pod(cls, pod: Pod) -> PodFailure:
        # A pod that was deleted has its reason, such as preemption, in a condition only.
        target = pod.conditions.get(DISRUPTION_TARGET, {})
        why = target if target.get("status") == "True" else {}
        reason, message = (pod.reason or why.get("reason", "")), (pod.message or why.get("message", ""))
        return cls(pod.name, "", None, reason, message, True, pod.deleting, _conditions(pod))

    @classmethod
    def of_restart(cls, pod: Pod, container: str) -> PodFailure:
        """Creates the record of a failure that is known only from the restart count."""
        note = "it was restarted, and the cause of its end is not recorded"
        return cls(pod.name, container, disrupted=pod.disrupted, conditions=_conditions(pod), note=note)

    @property
    def termination_message(self) -> TerminationMessage | None:
        """The termination message that the trainer wrote, or None."""
        return parse_termination_message(self.message)

    @property
    def sentence(self) -> str:
        """A description such as `pod p, container trainer: exit code 137 (OOMKilled): termination
        message`."""
        where = f"pod {self.pod}" + (f", container {self.container}" if self.container else "")
        if self.exit_code is None:
            why = self.reason or ("deleted by another client" if self.deleted else "lost")
            return ": ".join(filter(None, (where, why, _cut(self.message), self.note)))
        name = (
            self.reason if self.reason not in ("", "Error", "Completed") else SIGNALS.get(self.exit_code, "")
        )
        code = f"exit code {self.exit_code}" + (f" ({name})" if name else "")
        # A killed process writes no termination message. The kubelet then substitutes the last line
        # of the log, which does not explain the failure.
        explained = self.exit_code not in KILLED_FROM_OUTSIDE or self.termination_message is not None
        said = summarize_termination_message(self.message) if explained else ""
        return ": ".join(filter(None, (where, code, said, self.note)))


def classify_by_rules(failure: PodFailure, policy: PodFailurePolicy | None) -> FailureKind | None:
    """Classifies a failure by the user's rules. Returns None if none matches."""
    for rule in policy.rules if policy else ():
        if _matches(rule, failure):
            match rule.action:
                case "FailJob":
                    return FailureKind.PERMANENT
                case "Ignore":
                    return FailureKind.DISRUPTION
                case "Count":
                    return FailureKind.FAILURE
    return None


def classify(failure: PodFailure) -> FailureKind:
    """Classifies a failure by its exit code and reason alone."""
    if failure.disrupted or failure.exit_code is None:
        return FailureKind.DISRUPTION
    if failure.container == TRAINER_CONTAINER and failure.exit_code in PERMANENT_EXIT_CODES:
        return FailureKind.PERMANENT
    if failure.container == TRAINER_CONTAINER and failure.exit_code == ExitCode.FOREIGN_BYTES:
        return FailureKind.DISRUPTION
    if failure.exit_code in KILLED_FROM_OUTSIDE and failure.reason != "OOMKilled":
        return FailureKind.DISRUPTION
    return FailureKind.FAILURE


def permanent_reason(failure: PodFailure) -> str:
    """Returns the reason of the `Failed` condition after a permanent failure."""
    if failure.exit_code not in PERMANENT_EXIT_CODES:
        return "PodFailurePolicy"
    reported = failure.termination_message
    return reported.reason if reported and REASON.fullmatch(reported.reason) else "PermanentFailure"


def permanent_message(failure: PodFailure) -> str:
    """Returns the message of the `Failed` condition: the trainer's message if there is one, or a
    description of the failure."""
    reported = failure.termination_message
    return f"{failure.pod}: {reported.message}" if reported and reported.message else failure.sentence


def parse_termination_message(text: str) -> TerminationMessage | None:
    """Parses the termination message of a trainer, even if the kubelet has cut it. Returns None
    for any other text, which user code may have written."""
    if len(text) > TERMINATION_MESSAGE_BYTES_MAX:
        return None
    with suppress(ValidationError):
        return TerminationMessage.model_validate_json(text, extra="ignore")
    with suppress(ValidationError):
        return TerminationMessage.model_validate_json(_complete_parts(text), extra="ignore")
    return None


def _complete_parts(text: str) -> bytes:
    """Removes the incomplete parts at the end of a message that was cut. Returns any other text
    unchanged. A kubelet keeps 12 KiB of the messages of a pod, divided by the number of its
    containers."""
    content = text.encode(errors="replace")
    with suppress(ValueError):
        from_json(content)
        return content
    try:
        left = from_json(content, allow_partial="trailing-strings")
    except ValueError:
        return content
    # Leave out the field of the report in which the text ends, and a report without progress.
    report = left.pop("report", None) if isinstance(left, dict) else None
    if isinstance(report, dict) and "progress" in list(report)[:-1]:
        report.popitem()
        left["report"] = report
    return to_json(left)


def summarize_termination_message(text: str) -> str:
    """Returns one line of a termination message: the trainer's sentence, or the last line of any
    other text."""
    parsed = parse_termination_message(text)
    lines = (parsed.message if parsed else text).strip().splitlines()
    if not lines:
        return ""
    return _cut(lines[0] if parsed else lines[-1])


def _matches(rule: FailureRule, failure: PodFailure) -> bool:
    if (codes := rule.on_exit_codes) is not None:
        # Exit code 0 is no failure, so no rule matches, not even NotIn.
        if not failure.exit_code or codes.container_name not in (None, failure.container):
            return False
        return (failure.exit_code in codes.values) == (codes.operator == "In")
    held = failure.conditions or {}
    return any(held.get(wanted.type) == wanted.status for wanted in rule.on_pod_conditions or ())


def _conditions(pod: Pod) -> dict[str, str]:
    return {kind: condition.get("status", "Unknown") for kind, condition in pod.conditions.items()}


def _cut(text: str) -> str:
    return text if len(text) <= 500 else text[:497] + "..."
