"""Defines typed views of raw pods: the kubelet's report as the properties on which decisions
depend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, cast

from rltraining_api.contract import TRAINER_CONTAINER
from rltraining_api.names import ANNOTATION_ENCRYPTION, Role

Json = Mapping[str, Any]
DISRUPTION_TARGET = "DisruptionTarget"
NOT_STARTED = ("ContainerCreating", "PodInitializing")
"""Waiting reasons of containers before the first container of a pod is started. In a pod with init
containers all begin with the second one."""


@dataclass(frozen=True)
class Termination:
    """How a container ended."""

    container: str
    exit_code: int
    reason: str
    """`OOMKilled`, `Error`, `Completed`, or another reason of the runtime."""
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
        """When it was started, or None if it does not run."""
        return parse_time((self._state.get("running") or {}).get("startedAt"))

    @property
    def waiting(self) -> Json:
        """`{reason, message}` of a waiting container, otherwise empty."""
        return self._state.get("waiting") or {}

    @cached_property
    def terminated(self) -> Termination | None:
        """How the container ended, if it has ended and was not restarted."""
        return self._termination(self._state)

    @cached_property
    def last_terminated(self) -> Termination | None:
        """How the previous container ended."""
        return self._termination(self.raw.get("lastState") or {})

    @property
    def failures(self) -> int:
        """The number of failures: the restarts, and a failure that has not been followed by a
        restart yet.

        A container that the runtime has lost (`ContainerStatusUnknown`) is counted in
        `restartCount` while it still waits.
        """
        if self.terminated is not None:
            return self.restarts + (self.terminated.exit_code != 0)
        last = self.last_terminated
        awaits = bool(self.waiting) and last is not None and last.reason != "ContainerStatusUnknown"
        return self.restarts + awaits

    @property
    def newest_failure(self) -> Termination | None:
        """The newest failure."""
        if self.terminated is not None and self.terminated.exit_code != 0:
            return self.terminated
        return self.last_terminated

    @property
    def unexplained_restart(self) -> bool:
        """Whether the container was restarted without a recorded cause. A kubelet keeps only the
        last ended container, so a success replaces the failure before it. With restarts on failure
        only, as here, a restart after exit code 0 means that the kubelet ended the container, as
        after a failed liveness probe."""
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
    """A pod of a job. Its name identifies the member, because labels can be removed and a name
    cannot."""

    raw: Json

    @property
    def name(self) -> str:
        return str(self.raw["metadata"]["name"])

    @property
    def uid(self) -> str:
        return str(self.raw["metadata"]["uid"])

    @cached_property
    def annotations(self) -> Mapping[str, str]:
        return self.raw["metadata"].get("annotations") or {}

    @property
    def encrypted(self) -> bool:
        """Whether it accepts connections over TLS only, except for probes and metrics."""
        return ANNOTATION_ENCRYPTION in self.annotations

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
        """When a deleted pod must be gone, including its grace period, or None if it was not
        deleted."""
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
        """When the pod was assigned to a node."""
        scheduled = self.conditions.get("PodScheduled", {})
        if scheduled.get("status") != "True":
            return None
        return parse_time(scheduled.get("lastTransitionTime")) or self.created

    @property
    def unscheduled_since(self) -> datetime | None:
        """Since when the pod has waited for a node, or for a queue to admit it, or None if it does
        not wait."""
        scheduled = self.conditions.get("PodScheduled", {})
        if scheduled.get("status") != "False" or self.deleting or not self.active:
            return None
        return parse_time(scheduled.get("lastTransitionTime")) or self.created

    @property
    def awaits_claim(self) -> bool:
        """Whether the scheduler waits for a volume claim of the pod. Then room on a node is not the
        problem."""
        scheduled = self.conditions.get("PodScheduled", {})
        said = str(scheduled.get("message") or "").lower()
        return scheduled.get("status") == "False" and "persistentvolumeclaim" in said

    @property
    def unstarted_since(self) -> datetime | None:
        """Since when the pod has had a node and no container, or None if a container was started."""
        started = any(container.waiting.get("reason") not in NOT_STARTED for container in self.containers)
        return None if started or not self.active or self.deleting else self.scheduled_at

    @property
    def awaits_volumes_since(self) -> datetime | None:
        """Since when the pod has had a node and perhaps not its volumes, or None. The kubelet mounts
        the volumes before it prepares the sandbox of the containers."""
        prepared = self.conditions.get("PodReadyToStartContainers", {}).get("status") == "True"
        return None if prepared or self.ready else self.unstarted_since

    @property
    def active(self) -> bool:
        """Whether the pod may still have a process."""
        return not (self.failed or self.succeeded)

    @property
    def running(self) -> bool:
        """Whether one of its containers runs."""
        return self.active and any(container.running for container in self.containers)

    @property
    def trainer_running(self) -> bool:
        """Whether its trainer runs. A sidecar may run longer."""
        trainer = self.container(TRAINER_CONTAINER)
        return self.active and trainer is not None and trainer.running

    @property
    def ended_well(self) -> bool:
        """Whether its trainer has exited with code 0. The pod's phase changes a moment later, or
        never if a sidecar continues."""
        trainer = self.container(TRAINER_CONTAINER)
        return trainer is not None and trainer.terminated is not None and trainer.terminated.exit_code == 0

    @property
    def ready(self) -> bool:
        return self.active and not self.deleting and self.conditions.get("Ready", {}).get("status") == "True"

    @property
    def ready_at(self) -> datetime | None:
        """When the Ready condition last changed."""
        return parse_time(self.conditions.get("Ready", {}).get("lastTransitionTime"))

    @property
    def reason(self) -> str:
        """The reason for the state of the pod as a whole, such as `Evicted`."""
        return self._status.get("reason") or ""

    @property
    def message(self) -> str:
        return self._status.get("message") or ""

    @cached_property
    def conditions(self) -> Mapping[str, Json]:
        """The conditions by type."""
        return {condition["type"]: condition for condition in self._status.get("conditions") or ()}

    @property
    def disrupted(self) -> bool:
        """Whether the cluster reports that it removed the pod."""
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
        """Returns the container with this name, or None before the kubelet has reported it."""
        return next((container for container in self.containers if container.name == name), None)

    @property
    def failures(self) -> int:
        """The number of failures of its containers, which never decreases for one uid. Does not
        include exits caused by the deletion of the pod, or of a sidecar after its trainer has
        succeeded."""
        if self._going:
            return sum(container.restarts for container in self.containers)
        return sum(container.failures for container in self.containers)

    @property
    def newest_failure(self) -> Termination | None:
        """The newest of the failures that `failures` counts."""
        ends = (c.last_terminated if self._going else c.newest_failure for c in self.containers)
        failures = [end for end in ends if end is not None and end.exit_code != 0]
        return max(
            failures,
            key=lambda failure: failure.finished_at.timestamp() if failure.finished_at else 0.0,
            default=None,
        )

    @property
    def unexplained_restart(self) -> Container | None:
        """A container that was restarted for an unknown reason. Does not include init containers,
        which may run again after a success, as sidecars among them always do."""
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
        """Whether the kubelet is ending the containers that still run."""
        return self.deleting or self.ended_well

    @property
    def _status(self) -> Json:
        return cast(Json, self.raw.get("status") or {})


def parse_time(text: str | None) -> datetime | None:
    """Parses a Kubernetes time, such as `2026-11-21T01:16:00Z`."""
    return datetime.fromisoformat(text) if text else None
