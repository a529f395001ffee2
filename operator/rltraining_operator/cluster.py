"""The border between deciding and doing: all that the engine asks of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from rltraining_api.contract import LearnerReport

from rltraining_operator.answers import BadReport
from rltraining_operator.observed import Observed, Pod

Manifest = Mapping[str, Any]
"""A Kubernetes object as JSON; never written to."""
Awaited = Literal["awaited"]
"""The first answer, or the first in a while, is still to come."""


class Key(NamedTuple):
    """Which job."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Ref(NamedTuple):
    """Which object, in the namespace of its job."""

    kind: str
    name: str
    uid: str = ""
    """Delete only this incarnation of the object; empty: whichever bears the name."""
    grace_seconds: int | None = None
    """How long its processes may take to end; None: what the pod itself asks for."""


@dataclass(frozen=True)
class Event:
    """One line of a job's story, as `kubectl describe` shows it."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str
    reported: bool = False
    """Whether these are a learner's words, and not what the operator has seen itself."""


class Cluster(Protocol):
    """Where jobs and their children live. Every method may raise `ClusterError`; none blocks the event loop."""

    async def keys(self) -> list[Key]:
        """All jobs there are, for the periodic resync."""

    async def observe(self, key: Key) -> Observed | None:
        """The job with all its children as they are now; None when there is no such job."""

    async def learner_report(self, pod: Pod, token: str) -> LearnerReport | BadReport | Awaited | None:
        """What a learner says of itself (`GET /v1/status`); None when it does not answer within a second or two, and
        `"awaited"` while that is not known of one that was not asked lately."""

    async def create(self, key: Key, child: Manifest) -> None:
        """Create a child of the job. One of that name being there already is fine."""

    async def apply(self, key: Key, child: Manifest) -> None:
        """Create the child or bring the fields it names to the values given (server-side apply)."""

    async def delete(self, key: Key, ref: Ref) -> None:
        """Delete a child, or the job itself. Its being gone, or another incarnation in its place, is fine."""

    async def patch_status(self, key: Key, uid: str, status: Manifest) -> None:
        """Put a status in the place of the old one, fields that are missing from it included, if the job still has this
        uid; `NotFoundError` when it is gone."""

    async def emit(self, key: Key, uid: str, event: Event) -> None:
        """Add to the job's story. Equal events are counted, not repeated."""
