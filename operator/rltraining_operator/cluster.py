"""Defines the interface between decisions and actions: all requests of the engine to a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from rltraining_api.contract import LearnerReport

from rltraining_operator.observe.answers import BadReport
from rltraining_operator.observe.mounts import MountFailure
from rltraining_operator.observe.observed import Observed, Pod

Manifest = Mapping[str, Any]
"""A Kubernetes object as JSON. Never modified."""
Awaited = Literal["awaited"]
"""The first answer, or the first in a while, is outstanding."""


class Key(NamedTuple):
    """Identifies a job."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Ref(NamedTuple):
    """Identifies an object in the namespace of its job."""

    kind: str
    name: str
    uid: str = ""
    """Delete only this incarnation of the object. If empty, any object with the name."""
    grace_seconds: int | None = None
    """How long its processes may take to exit. None: the grace period of the pod."""


@dataclass(frozen=True)
class Event:
    """An event of a job, as `kubectl describe` shows it."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str
    reported: bool = False
    """Whether a learner's report or a roll-out caused the event, as opposed to the cluster or the
    spec. Such events are many, and leave room for others."""


class Cluster(Protocol):
    """Stores jobs and their children. Every method may raise `ClusterError`. None blocks the event
    loop."""

    async def keys(self) -> list[Key]:
        """Returns all jobs, for the periodic resync."""

    async def observe(self, key: Key) -> Observed | None:
        """Returns the job with all its children in their current state, or None if the job does not
        exist, or another operator runs it."""

    async def learner_report(self, pod: Pod, token: str) -> LearnerReport | BadReport | Awaited | None:
        """Returns a learner's report (`GET /v1/status`), or None if it does not answer within a
        second or two. Returns `"awaited"` until the first answer of a learner that was not asked
        lately."""

    async def mount_failure(self, pod: Pod) -> MountFailure | None:
        """Returns why the volumes of a pod cannot be mounted, or None if no event of the pod names a
        cause. Does not raise `ClusterError`: the answer is informational."""

    def creating(self, namespace: str) -> AbstractAsyncContextManager[None]:
        """Held while the first pods of a job are created, so that the jobs of a namespace do not each
        take a part of a quota that suffices for one of them."""

    async def create(self, key: Key, child: Manifest) -> None:
        """Creates a child of the job. Does nothing if a child with this name exists."""

    async def apply(self, key: Key, child: Manifest) -> None:
        """Creates the child, or sets its fields to the given values (server-side apply)."""

    async def delete(self, key: Key, ref: Ref) -> None:
        """Deletes a child, or the job itself. Does nothing if it is gone or was replaced by another
        incarnation."""

    async def patch_status(self, key: Key, uid: str, status: Manifest) -> None:
        """Replaces the whole status, if the job still has this uid. Removes fields that are missing
        from the new status. Raises `NotFoundError` if the job is gone."""

    async def emit(self, key: Key, uid: str, event: Event) -> None:
        """Adds an event to the job. Equal events are counted, not repeated."""
