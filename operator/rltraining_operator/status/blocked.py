"""Finds out why a job does not run, as a reason and a sentence for its status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from rltraining_api.contract import HTTP_PORT, TLS_PORT
from rltraining_api.job import RLTrainingJob
from rltraining_api.names import ROLES, claim_name, pod_name

from rltraining_operator.failures.endings import exited_without_report
from rltraining_operator.failures.ledger import FailureCounts
from rltraining_operator.failures.pod_failure import KILLED_FROM_OUTSIDE, REASON, PodFailure
from rltraining_operator.observe.admission import AdmissionFailure
from rltraining_operator.observe.answers import TOKEN_REJECTED
from rltraining_operator.observe.observed import Observed, Pod
from rltraining_operator.settings import START_SECONDS, UNREACHABLE_SECONDS, Settings

UNSCHEDULABLE, CLAIM_UNBOUND, GATED = "Unschedulable", "ClaimUnbound", "SchedulingGated"
IMAGE, CONFIG, START, MOUNT, SLOW = (
    "ImagePullFailed",
    "ContainerConfigFailed",
    "ContainerStartFailed",
    "VolumeMountFailed",
    "StartDelayed",
)
WAITING = "MembersNotReady"
EVENTFUL = frozenset({UNSCHEDULABLE, CLAIM_UNBOUND, GATED, IMAGE, CONFIG, START, MOUNT, SLOW})
"""Reasons that become an event when they occur. Failures of containers and rejections have their
own events."""

ON_ITS_WAY = ("", "ContainerCreating", "PodInitializing", "CrashLoopBackOff")
"""Waiting reasons that are normal, or that the last failure explains better."""
WAITS = {
    "ErrImagePull": IMAGE,
    "ImagePullBackOff": IMAGE,
    "ErrImageNeverPull": IMAGE,
    "InvalidImageName": IMAGE,
    "ImageInspectError": IMAGE,
    "RegistryUnavailable": IMAGE,
    "SignatureValidationFailed": IMAGE,
    "CreateContainerConfigError": CONFIG,
}
"""Maps a kubelet's reasons of a waiting container to the operator's reasons. Any other reason is a
failed start."""


@dataclass(frozen=True)
class BlockedReason:
    """What keeps a job from running: `reason` in CamelCase for programs, `sentence` for people.
    Both are empty if nothing does."""

    reason: str = ""
    sentence: str = ""


UNREACHABLE = BlockedReason(
    "LearnerUnreachable",
    f"the learner is ready, but does not answer the operator on port {HTTP_PORT}, or {TLS_PORT} if the job is encrypted, so "
    "its progress is not known: "
    "look for a NetworkPolicy, or a service mesh, that keeps the operator's pods out",
)
UNREACHABLE_LOCALLY = BlockedReason(
    UNREACHABLE.reason,
    f"the learner has not reported its progress for {UNREACHABLE_SECONDS:.0f} s, so its progress is not known: look "
    "for other programs that keep this machine busy, or for user code that blocks the learner's process",
)

BAD_REPORT = "LearnerReportInvalid"
SILENT = frozenset({UNREACHABLE.reason, BAD_REPORT})
"""Reasons with which the state of a ready learner is unknown."""


def bad_report(problem: str) -> BlockedReason:
    """Describes a learner that does not answer with valid reports."""
    sentence = f"the learner's report cannot be read, so its progress is not known: {problem}"
    if problem == TOKEN_REJECTED.problem:
        remedy = "restore that key, or suspend the job, delete its Secret, and resume it"
        return BlockedReason(BAD_REPORT, f"{sentence}; {remedy}")
    return BlockedReason(
        BAD_REPORT, f"{sentence}; look for user code that answers on port {HTTP_PORT}, or another image"
    )


def find_blocked_reason(
    job: RLTrainingJob,
    observed: Observed,
    counts: FailureCounts,
    rejection: AdmissionFailure | None,
    now: datetime,
    settings: Settings,
) -> BlockedReason:
    """Returns why the first unready member is not ready. Problems precede waiting, and learners
    precede samplers."""
    # List the members that are not ready.
    needed = rejection is not None and not rejection.optional
    rejected = BlockedReason(rejection.reason, rejection.sentence) if rejection and needed else None
    pods = {pod.name: pod for pod in observed.pods}
    names = [pod_name(observed.name, role, i) for role in ROLES for i in range(job.spec.replicas(role))]
    unready = [name for name in names if name not in pods or not pods[name].ready]
    # Report the first of them with a known cause.
    for name in unready:
        found = _blocked_reason_of_pod(pods[name], observed, now, settings) if name in pods else rejected
        if found is not None:
            return found
    if rejected:  # for a child that is not a pod
        return rejected
    if not unready:
        return BlockedReason()
    # Without a cause, report the newest failure, or the member that is not ready.
    if counts.failures:
        return _reason_of_failure(counts.failures[-1].failure)
    others = f" and {len(unready) - 1} more" if len(unready) > 1 else ""
    return BlockedReason(WAITING, f"waiting for pod {unready[0]}{others} to be ready")


def slow_at(pod: Pod) -> datetime | None:
    """Returns when a pod without containers counts as slow, or None if it has started or has no
    node."""
    since = pod.unstarted_since
    return None if since is None else since + timedelta(seconds=START_SECONDS)


def _blocked_reason_of_pod(
    pod: Pod, observed: Observed, now: datetime, settings: Settings
) -> BlockedReason | None:
    scheduled = pod.conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False" and not pod.deleting:
        return _unscheduled(pod, scheduled, observed)
    for container in pod.containers:
        reason = container.waiting.get("reason") or ""
        if reason not in ON_ITS_WAY:
            said = (f"pod {pod.name}, container {container.name}", reason, container.waiting.get("message"))
            return BlockedReason(WAITS.get(reason, START), ": ".join(filter(None, said)))
    if pod.deleting:
        return BlockedReason("Terminating", f"pod {pod.name} is being deleted")
    if (silent := exited_without_report(pod, observed, now)) is not None:
        return _reason_of_failure(silent)
    if (end := pod.newest_failure) is not None:
        return _reason_of_failure(PodFailure.of_container(pod, end))
    if pod.failed:
        return _reason_of_failure(PodFailure.of_pod(pod))
    failure = observed.mount_failure
    if failure is not None and failure.pod_uid == pod.uid and pod.awaits_volumes_since is not None:
        return BlockedReason(MOUNT, f"pod {pod.name} cannot start: {failure.cause}")
    if (when := slow_at(pod)) is not None and when <= now:
        return _slow_locally(pod) if settings.one_machine else _slow(pod)
    return None


def _unscheduled(pod: Pod, scheduled: Mapping[str, Any], observed: Observed) -> BlockedReason:
    said = str(scheduled.get("message") or scheduled.get("reason") or "no reason given")
    if scheduled.get("reason") == GATED:
        return BlockedReason(GATED, f"pod {pod.name} waits for a queue to admit it: {said}")
    sentence = f"pod {pod.name} cannot be scheduled: {said}"
    if not pod.awaits_claim:
        return BlockedReason(UNSCHEDULABLE, sentence)
    claim = observed.child("PersistentVolumeClaim", claim_name(observed.name))
    phase = ((claim or {}).get("status") or {}).get("phase") or "Pending"
    if claim is None or phase == "Bound":
        return BlockedReason(CLAIM_UNBOUND, sentence)
    kind = claim["spec"].get("storageClassName")
    backed = f"storage class {kind}" if kind else "no storage class, and the cluster seems to have no default"
    state = f"claim {claim['metadata']['name']} is {phase}: {backed}"
    return BlockedReason(CLAIM_UNBOUND, f"{sentence} ({state})")


def _slow(pod: Pod) -> BlockedReason:
    """Describes a pod without containers by its conditions, since no event of the pod names a
    cause. A kubelet may report False also while it pulls an image, because it updates the condition afterwards."""
    sandbox = pod.conditions.get("PodReadyToStartContainers", {}).get("status")
    cause = {
        "False": "its image is still being pulled, or its volumes or its network cannot be set up",
        "True": "its image is still being pulled",
    }.get(str(sandbox), "its image is still being pulled, or a volume cannot be mounted")
    where = f"pod {pod.name} has had a node for {START_SECONDS:.0f} s and no container"
    return BlockedReason(SLOW, f"{where}: {cause}; see: kubectl describe pod {pod.name}")


def _slow_locally(pod: Pod) -> BlockedReason:
    """Describes a process that has not started, usually because other programs slow down the import of torch."""
    sentence = (
        f"{pod.name} has not started after {START_SECONDS:.0f} s: loading torch takes longer than usual"
    )
    return BlockedReason(SLOW, f"{sentence}; look for other programs that keep this machine busy")


def _reason_of_failure(failure: PodFailure) -> BlockedReason:
    if failure.exit_code is None:
        reason = failure.reason if REASON.fullmatch(failure.reason) else "PodLost"
    elif failure.reason == "OOMKilled":
        reason = failure.reason
    elif failure.termination_message and REASON.fullmatch(failure.termination_message.reason):
        reason = failure.termination_message.reason
    else:
        reason = "Disrupted" if failure.exit_code in KILLED_FROM_OUTSIDE else "ContainerFailed"
    return BlockedReason(reason, failure.sentence)
