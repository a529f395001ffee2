"""Describes why a cluster rejects a child, as a reason for programs and a sentence for people.
Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rltraining_operator.errors import NameTakenError, RejectedError

QUOTA_EXCEEDED, OPTIONAL = "QuotaExceeded", "OptionalObjectRejected"
REASONS = (
    ("exceeded quota", QUOTA_EXCEEDED),
    ("failed quota", QUOTA_EXCEEDED),
    ("violates PodSecurity", "PodSecurityViolation"),
    ("cannot create resource", "OperatorForbidden"),
    ("cannot get resource", "OperatorForbidden"),
    ("cannot patch resource", "OperatorForbidden"),
    (" is invalid: ", "Invalid"),
)
"""Parts of an API server's messages, and their reasons."""


@dataclass(frozen=True)
class AdmissionFailure:
    """A child that could not be created."""

    reason: str
    sentence: str
    name: str = ""
    """The name of the child."""

    @property
    def optional(self) -> bool:
        """Whether the job runs without the child."""
        return self.reason == OPTIONAL


def parse_admission_failure(
    error: RejectedError | NameTakenError, child: Mapping[str, Any], remedy: str = ""
) -> AdmissionFailure:
    """Returns why the cluster rejected this child. The sentence names the child and contains the
    cluster's message. With a `remedy` the child is optional."""
    said, name = str(error), child["metadata"]["name"]
    sentence = said if name in said else f"{child['kind']} {name}: {said}"
    if remedy:
        return AdmissionFailure(OPTIONAL, f"{sentence}. The job runs without it: {remedy}", name)
    if isinstance(error, NameTakenError):
        return AdmissionFailure("NameTaken", sentence, name)
    reason = next((reason for part, reason in REASONS if part in said), "AdmissionRefused")
    return AdmissionFailure(reason, sentence, name)
