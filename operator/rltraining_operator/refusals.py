"""What a cluster refuses to make, and why, in a word for machines and a sentence for people. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rltraining_operator.errors import NameTakenError, RejectedError

WORDS = (
    ("exceeded quota", "QuotaExceeded"),
    ("violates PodSecurity", "PodSecurityViolation"),
    ("cannot create resource", "OperatorForbidden"),
    ("cannot patch resource", "OperatorForbidden"),
    (" is invalid: ", "Invalid"),
)
"""Parts of an API server's sentences, and the reasons they stand for."""


@dataclass(frozen=True)
class Refusal:
    """A child that could not be made."""

    reason: str
    sentence: str


def read_refusal(error: RejectedError | NameTakenError, child: Mapping[str, Any]) -> Refusal:
    """Why the cluster would not have this child; the sentence names it and keeps the cluster's own words."""
    said, name = str(error), child["metadata"]["name"]
    sentence = said if name in said else f"{child['kind']} {name}: {said}"
    if isinstance(error, NameTakenError):
        return Refusal("NameTaken", sentence)
    return Refusal(next((reason for part, reason in WORDS if part in said), "AdmissionRefused"), sentence)
