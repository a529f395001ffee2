"""Typed views of raw pods: what a kubelet says, in the words that decisions are made in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, cast

from rltraining_api.contract import TRAINER_CONTAINER
from rltraining_api.names import Role

Json = Mapping[str, Any]
DISRUPTION_TARGET = "DisruptionTarget"


@dataclass(frozen=True)
class Termination:
    """How a container ended."""

    container: str
    exit_code: int
    reason: str
    """`OOMKilled`, `Error`, `Completed`, or whatever the runtime says."""
    message: str
    """Its termination message."""
    finished_at: datetime | None


@dataclass(frozen=True)
class Container:
    """`status.containerStatuses[i]` of a pod."""

    raw: Json

    @property
    def name(self) -> str:
        return str(self.raw["name"])

    @property
    def restarts(self) -> int:
        return int(self.raw.get("restartCount", 0))

    @property
    def running(self) -> bool:
        return "running" in self._state

    @property
    def started_at(self) -> datetime | None:
        """When it was started, if it runs."""
        return parse_time((self._state.get("running") or {}).get("startedAt"))

    @property
    def waiting(self) -> Json:
        """`{reason, message}` of a container that waits, else empty."""
        return self._state.get("waiting") or {}

    @cached_property
    def terminated(self) -> Termination | None:
        """How it ended, when it lies there ended."""
        return self._termination(self._state)

    @cached_property
    def last_terminated(self) -> Termination | None:
        """How the incarnation before this one ended."""
        return self._termination(self.raw.get("lastState") or {})

    @property
    def deaths(self) -> int:
        """How often it has ended other than well: its restarts, and the end that waits for one.

        A container of which the runtime has lost track (`ContainerStatusUnknown`) is counted in `restartCount`
        already while it still waits.
        """
        if self.terminated is not None:
            return self.restarts + (self.terminated.exit_code != 0)
        last = self.last_terminated
        awaits = bool(self.waiting) and last is not None and last.reason != "ContainerStatusUnknown"
        return self.restarts + awaits

    @property
    def newest_death(self) -> Termination | None:
        """The latest end that was not a good one."""
        if self.terminated is not None and self.terminated.exit_code != 0:
            return self.terminated
        return self.last_terminated

    @property
    def unexplained_restart(self) -> bool:
        """Whether the container was restarted without a recorded cause. A kubelet keeps only the last ended container,
        so a success replaces the failure before it. With restarts on failure only, as here, a restart after exit code 0
        means that the kubelet ended the container, as after a failed liveness probe."""
        last = self.last_terminated
        return self.restarts > 0 and (last is None or last.exit_code == 0)

    @property
    def _state(self) -> Json:
        return cast(Json, self.raw.get("state") or {})

    def _termination(self, state: Json) -> Termination | None:
        ended = state.get("terminated")
        if ended is None:
            return None
        return Termination(
            container=self.name,
            exit_code=int(ended["exitCode"]),
            reason=ended.get("reason") or "",
            message=ended.get("message") or "",
            finished_at=parse_time(ended.get("finishedAt")),
        )


@dataclass(frozen=True)
class Pod:
    """A pod of a job, known as its member by its name: labels can be taken away, a name cannot."""

    raw: Json

    @property
    def name(self) -> str:
        return str(self.raw["metadata"]["name"])

    @property
    def uid(self) -> str:
        return str(self.raw["metadata"]["uid"])

    @cached_property
    def role(self) -> Role:
        return cast(Role, self.name.rsplit("-", 2)[1])

    @cached_property
    def index(self) -> int:
        return int(self.name.rsplit("-", 1)[1])

    @cached_property
    def created(self) -> datetime | None:
        return parse_time(self.raw["metadata"].get("creationTimestamp"))

    @cached_property
    def delete_by(self) -> datetime | None:
        """When a deleted pod has to be gone, grace period included; None if it was not deleted."""
        return parse_time(self.raw["metadata"].get("deletionTimestamp"))

    @property
    def deleting(self) -> bool:
        return self.delete_by is not None

    @property
    def phase(self) -> str:
        return str(self._status.get("phase") or "Pending")

    @property
    def failed(self) -> bool:
        return self.phase == "Failed"

    @property
    def succeeded(self) -> bool:
        return self.phase == "Succeeded"

    @cached_property
    def scheduled_at(self) -> datetime | None:
        """When it was given a node."""
        scheduled = self.conditions.get("PodScheduled", {})
        if scheduled.get("status") != "True":
            return None
        return parse_time(scheduled.get("lastTransitionTime")) or self.created

    @property
    def active(self) -> bool:
        """Whether it may still have a process."""
        return not (self.failed or self.succeeded)

    @property
    def running(self) -> bool:
        """Whether one of its containers runs."""
        return self.active and any(container.running for container in self.containers)

    @property
    def ended_well(self) -> bool:
        """Whether its trainer has ended with code 0; the pod's phase may tell so a moment later, or, where a sidecar goes
        on, never."""
        trainer = self.container(TRAINER_CONTAINER)
        return trainer is not None and trainer.terminated is not None and trainer.terminated.exit_code == 0

    @property
    def ready(self) -> bool:
        return self.active and not self.deleting and self.conditions.get("Ready", {}).get("status") == "True"

    @property
    def ready_at(self) -> datetime | None:
        """When it became ready, or ceased to be."""
        return parse_time(self.conditions.get("Ready", {}).get("lastTransitionTime"))

    @property
    def reason(self) -> str:
        """Why the pod as a whole is as it is: `Evicted`."""
        return self._status.get("reason") or ""

    @property
    def message(self) -> str:
        return self._status.get("message") or ""

    @cached_property
    def conditions(self) -> Mapping[str, Json]:
        """By type."""
        return {condition["type"]: condition for condition in self._status.get("conditions") or ()}

    @property
    def disrupted(self) -> bool:
        """Whether the cluster says that it took the pod away."""
        target = self.conditions.get(DISRUPTION_TARGET, {}).get("status") == "True"
        return target or self.reason in (
            "Evicted",
            "Preempting",
            "NodeLost",
            "NodeShutdown",
            "Shutdown",
            "Terminated",
        )

    @cached_property
    def containers(self) -> tuple[Container, ...]:
        every = (
            *(self._status.get("initContainerStatuses") or ()),
            *(self._status.get("containerStatuses") or ()),
        )
        return tuple(map(Container, every))

    def container(self, name: str) -> Container | None:
        """The container of this name; None before the kubelet has seen it."""
        return next((container for container in self.containers if container.name == name), None)

    @property
    def deaths(self) -> int:
        """How often its containers have ended badly. Grows only, for one uid; the end that follows on the pod's being
        deleted, or of a sidecar on its trainer's good end, is not one of them."""
        if self._going:
            return sum(container.restarts for container in self.containers)
        return sum(container.deaths for container in self.containers)

    @property
    def newest_death(self) -> Termination | None:
        """The latest of the bad ends that `deaths` counts."""
        ends = (c.last_terminated if self._going else c.newest_death for c in self.containers)
        deaths = [end for end in ends if end is not None and end.exit_code != 0]
        return max(
            deaths,
            key=lambda death: death.finished_at.timestamp() if death.finished_at else 0.0,
            default=None,
        )

    @property
    def unexplained_restart(self) -> Container | None:
        """A container that was restarted for a reason that is not known. Not an init container: it may run again
        after a good end, and a sidecar among them always does."""
        own = map(Container, self._status.get("containerStatuses") or ())
        return next((container for container in own if container.unexplained_restart), None)

    @property
    def ended_at(self) -> datetime | None:
        """When its last container ended."""
        times = [
            c.terminated.finished_at for c in self.containers if c.terminated and c.terminated.finished_at
        ]
        return max(times, default=None)

    @property
    def _going(self) -> bool:
        """Whether a kubelet ends what still runs in it."""
        return self.deleting or self.ended_well

    @property
    def _status(self) -> Json:
        return cast(Json, self.raw.get("status") or {})


def parse_time(text: str | None) -> datetime | None:
    """A Kubernetes time, `2026-11-21T01:16:00Z`."""
    return datetime.fromisoformat(text) if text else None
