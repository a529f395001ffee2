"""Judging an end: what it was, whether it counts, whether it is final."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from pydantic import ValidationError
from rltraining_api.contract import (
    PERMANENT_EXIT_CODES,
    TERMINATION_MESSAGE_BYTES_MAX,
    TRAINER_CONTAINER,
    ExitCode,
    TerminationMessage,
)
from rltraining_api.failure_policy import FailureRule, PodFailurePolicy

from rltraining_operator.pod_view import Pod, Termination

KILLED_FROM_OUTSIDE = (137, 143)
"""SIGKILL and SIGTERM: nothing a program does to itself."""
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


class Verdict(Enum):
    """What an end means for the job."""

    DISRUPTION = auto()
    """Came from outside: healed, not counted."""
    FAILURE = auto()
    """Healed, and counted against `backoffLimit`."""
    PERMANENT = auto()
    """Restarting cannot help: the job fails."""


@dataclass(frozen=True)
class Death:
    """A container's or a whole pod's bad end."""

    pod: str
    container: str = ""
    """Empty: the pod as a whole."""
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    """The raw termination message, or the pod's."""
    disrupted: bool = False
    """The cluster says that it took the pod away."""
    conditions: Mapping[str, str] | None = None
    """Status by type, of the pod's conditions."""
    note: str = ""
    """What else is to be said of it."""

    @classmethod
    def of_container(cls, pod: Pod, end: Termination) -> Death:
        return cls(
            pod.name, end.container, end.exit_code, end.reason, end.message, pod.disrupted, _conditions(pod)
        )

    @classmethod
    def of_pod(cls, pod: Pod) -> Death:
        return cls(pod.name, "", None, pod.reason, pod.message, True, _conditions(pod))

    @classmethod
    def of_restart(cls, pod: Pod, container: str) -> Death:
        """Creates the record of a failure that is known only from the restart count."""
        note = "it was restarted, and how it had ended is not recorded"
        return cls(pod.name, container, None, "", "", pod.disrupted, _conditions(pod), note)

    @property
    def words(self) -> TerminationMessage | None:
        """What the trainer itself wrote."""
        return parse_termination_message(self.message)

    @property
    def sentence(self) -> str:
        """`pod p, container trainer: exit code 137 (OOMKilled): last words`."""
        where = f"pod {self.pod}" + (f", container {self.container}" if self.container else "")
        if self.exit_code is None:
            return ": ".join(filter(None, (where, self.reason or "lost", _cut(self.message), self.note)))
        name = (
            self.reason if self.reason not in ("", "Error", "Completed") else SIGNALS.get(self.exit_code, "")
        )
        code = f"exit code {self.exit_code}" + (f" ({name})" if name else "")
        # Who is killed has no time for last words: what a kubelet takes from the log then is only the log's last line.
        said = (
            "" if self.exit_code in KILLED_FROM_OUTSIDE and self.words is None else last_words(self.message)
        )
        return ": ".join(filter(None, (where, code, said, self.note)))


def judge(death: Death, policy: PodFailurePolicy | None) -> Verdict:
    """The first rule of `podFailurePolicy` that matches decides; where none does, our own judgement."""
    return judge_by_rules(death, policy) or judge_by_nature(death)


def judge_by_rules(death: Death, policy: PodFailurePolicy | None) -> Verdict | None:
    """What the user's rules say; None where none matches."""
    for rule in policy.rules if policy else ():
        if _matches(rule, death):
            match rule.action:
                case "FailJob":
                    return Verdict.PERMANENT
                case "Ignore":
                    return Verdict.DISRUPTION
                case "Count":
                    return Verdict.FAILURE
    return None


def judge_by_nature(death: Death) -> Verdict:
    """What an end is by itself."""
    if death.disrupted or death.exit_code is None:
        return Verdict.DISRUPTION
    if death.container == TRAINER_CONTAINER and death.exit_code in PERMANENT_EXIT_CODES:
        return Verdict.PERMANENT
    if death.container == TRAINER_CONTAINER and death.exit_code == ExitCode.FOREIGN_BYTES:
        return Verdict.DISRUPTION
    if death.exit_code in KILLED_FROM_OUTSIDE and death.reason != "OOMKilled":
        return Verdict.DISRUPTION
    return Verdict.FAILURE


def permanent_reason(death: Death) -> str:
    """The reason of the `Failed` condition after a permanent end."""
    if death.exit_code not in PERMANENT_EXIT_CODES:
        return "PodFailurePolicy"
    words = death.words
    return words.reason if words and REASON.fullmatch(words.reason) else "PermanentFailure"


def permanent_message(death: Death) -> str:
    """Its message: what the trainer wrote, else all that is known."""
    words = death.words
    return f"{death.pod}: {words.message}" if words and words.message else death.sentence


def parse_termination_message(text: str) -> TerminationMessage | None:
    """What a trainer wrote as it ended; None when it is something else, which user code may have written."""
    if len(text) > TERMINATION_MESSAGE_BYTES_MAX:
        return None
    try:
        return TerminationMessage.model_validate_json(text, extra="ignore")
    except ValidationError:
        return None


def last_words(text: str) -> str:
    """One line of a termination message: the trainer's sentence, or the last line of whatever it is."""
    words = parse_termination_message(text)
    lines = (words.message if words else text).strip().splitlines()
    if not lines:
        return ""
    return _cut(lines[0] if words else lines[-1])


def _matches(rule: FailureRule, death: Death) -> bool:
    if (codes := rule.on_exit_codes) is not None:
        # Code 0 is of no failure: no rule is for it, not even NotIn.
        if not death.exit_code or codes.container_name not in (None, death.container):
            return False
        return (death.exit_code in codes.values) == (codes.operator == "In")
    held = death.conditions or {}
    return any(held.get(wanted.type) == wanted.status for wanted in rule.on_pod_conditions or ())


def _conditions(pod: Pod) -> dict[str, str]:
    return {kind: condition.get("status", "Unknown") for kind, condition in pod.conditions.items()}


def _cut(text: str) -> str:
    return text if len(text) <= 500 else text[:497] + "..."
