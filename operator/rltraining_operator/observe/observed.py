"""Defines the observation of one pass: a job and its children."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rltraining_api.contract import LearnerReport
from rltraining_api.job import RLTrainingJob
from rltraining_api.manifest import ManifestError, read_job
from rltraining_api.names import CONTROLLER_NAME, Role, parse_pod_name
from rltraining_api.status import Status

from rltraining_operator.observe.admission import AdmissionFailure
from rltraining_operator.observe.mounts import MountFailure
from rltraining_operator.observe.pod_view import Pod
from rltraining_operator.observe.stored_status import read_status

__all__ = ["Observed", "Pod"]

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Observed:
    """A job and all its children at one time."""

    name: str
    namespace: str
    uid: str
    generation: int
    deleting: bool
    job: RLTrainingJob | None
    """None if the object is not a valid job."""
    invalid: str
    """In that case, a sentence with the reason."""
    managed_by: str | None
    """The controller in charge, also of an invalid job."""
    ttl_seconds: int | None
    """`runPolicy.ttlSecondsAfterFinished`, also of an invalid job."""
    status: Status
    """The stored status."""
    unreadable: str
    """One sentence about the parts of the status that could not be read. They are rebuilt."""
    pods: tuple[Pod, ...]
    others: tuple[Json, ...]
    """Children of the job other than pods."""
    token: str
    """The job's token, which its Secret gives to its pods. The same at each pass."""
    report: LearnerReport | None = None
    """The first learner's report, if the learner runs and has answered."""
    bad_report: str = ""
    """The problem with the learner's answer, if it was not a valid report."""
    awaited: bool = False
    """Whether the first request, or the first in a while, is still without an answer."""
    mount_failure: MountFailure | None = None
    """Why the volumes of the first pod without them cannot be mounted, if the kubelet has reported
    it."""
    operators: tuple[str, ...] | None = ()
    """The operators that serve the job, if another one besides this one does. None: not known yet."""
    runner: str = ""
    """Which of these operators runs the job, if that is known."""
    rejection: AdmissionFailure | None = None
    """The object that the cluster has rejected in this pass."""

    @classmethod
    def of(cls, job: Json, children: Iterable[Json], token: str) -> Observed:
        """Parses the raw objects. Ignores children of other owners, such as a deleted job of the
        same name."""
        metadata, invalid = job["metadata"], ""
        parsed: RLTrainingJob | None = None
        try:
            parsed = read_job({key: value for key, value in job.items() if key != "status"})
        except ManifestError as error:
            invalid = str(error).replace("\n", "; ")
        status, unreadable = read_status(job.get("status"))
        known = [child for child in children if _owner(child) == metadata["uid"]]
        pods = (Pod(child) for child in known if _is_member(child, metadata["name"]))
        policy = _object(_object(job.get("spec")).get("runPolicy"))
        ttl = policy.get("ttlSecondsAfterFinished")
        return cls(
            name=metadata["name"],
            namespace=metadata.get("namespace") or "default",
            uid=metadata["uid"],
            generation=int(metadata.get("generation") or 0),
            deleting=metadata.get("deletionTimestamp") is not None,
            job=parsed,
            invalid=invalid,
            managed_by=policy.get("managedBy"),
            ttl_seconds=ttl if isinstance(ttl, int) else None,
            status=status,
            unreadable=unreadable,
            pods=tuple(sorted(pods, key=lambda pod: (pod.role, pod.index))),
            others=tuple(child for child in known if child["kind"] != "Pod"),
            token=token,
        )

    @property
    def managed(self) -> bool:
        """Whether this operator is in charge of the job, and the job is not being deleted."""
        return not self.deleting and self.managed_by in (None, CONTROLLER_NAME)

    def child(self, kind: str, name: str) -> Json | None:
        """Returns a child other than a pod, or None."""
        return next((c for c in self.others if c["kind"] == kind and c["metadata"]["name"] == name), None)

    def role(self, role: Role) -> tuple[Pod, ...]:
        """Returns the pods of a role, sorted by index."""
        return tuple(pod for pod in self.pods if pod.role == role)

    @property
    def first_learner(self) -> Pod | None:
        """The pod of the learner that reports for the job and writes checkpoints and the policy."""
        return next((pod for pod in self.role("learner") if pod.index == 0), None)


def _is_member(child: Json, job: str) -> bool:
    """Returns whether the child is a member's pod: users can create other pods that the job
    owns."""
    return child["kind"] == "Pod" and parse_pod_name(job, child["metadata"]["name"]) is not None


def _object(value: Any) -> Json:
    return value if isinstance(value, Mapping) else {}


def _owner(child: Json) -> str:
    """Returns the uid of the controller that owns an object, or an empty string."""
    owners = child["metadata"].get("ownerReferences") or ()
    return next((owner["uid"] for owner in owners if owner.get("controller")), "")
