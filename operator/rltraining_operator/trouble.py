"""Finds out why a job does not run, as a reason and a sentence for its status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from rltraining_api.contract import HTTP_PORT
from rltraining_api.job import RLTrainingJob
from rltraining_api.names import ROLES, claim_name, pod_name

from rltraining_operator.answers import REFUSED
from rltraining_operator.failures import KILLED_FROM_OUTSIDE, REASON, Death
from rltraining_operator.ledger import Tally
from rltraining_operator.members import silent_end
from rltraining_operator.observed import Observed, Pod
from rltraining_operator.refusals import Refusal
from rltraining_operator.settings import START_SECONDS, UNREACHABLE_SECONDS

UNSCHEDULABLE, CLAIM_UNBOUND, GATED = "Unschedulable", "ClaimUnbound", "SchedulingGated"
IMAGE, CONFIG, START, SLOW = (
    "ImagePullFailed",
    "ContainerConfigFailed",
    "ContainerStartFailed",
    "StartDelayed",
)
WAITING = "MembersNotReady"
EVENTFUL = frozenset({UNSCHEDULABLE, CLAIM_UNBOUND, GATED, IMAGE, CONFIG, START, SLOW})
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
class Trouble:
    """What keeps a job from running: `reason` in CamelCase for programs, `sentence` for people.
    Both are empty if nothing does."""

    reason: str = ""
    sentence: str = ""


UNREACHABLE = Trouble(
    "LearnerUnreachable",
    f"the learner is ready, but does not answer the operator on port {HTTP_PORT}, so its progress is not known: "
    "look for a NetworkPolicy, or a service mesh, that keeps the operator's pods out",
)
UNREACHABLE_LOCALLY = Trouble(
    UNREACHABLE.reason,
    f"the learner has not reported its progress for {UNREACHABLE_SECONDS:.0f} s, so its progress is not known: look "
    "for other programs that keep this machine busy, or for code of your own that blocks the learner's process",
)

BAD_REPORT = "LearnerReportInvalid"
SILENT = frozenset({UNREACHABLE.reason, BAD_REPORT})
"""Reasons with which the state of a ready learner is unknown."""


def bad_report(problem: str) -> Trouble:
    """Describes a learner that does not answer with valid reports."""
    sentence = f"the learner's report cannot be read, so its progress is not known: {problem}"
    if problem == REFUSED.problem:
        return Trouble(BAD_REPORT, f"{sentence}; suspend the job, delete its Secret, and resume it")
    return Trouble(
        BAD_REPORT, f"{sentence}; look for user code that answers on port {HTTP_PORT}, or another image"
    )


def find_trouble(
    job: RLTrainingJob, observed: Observed, tally: Tally, refusal: Refusal | None, now: datetime
) -> Trouble:
    """Returns why the first unready member is not ready. Problems precede waiting, and learners
    precede samplers."""
    # List the members that are not ready.
    refused = Trouble(refusal.reason, refusal.sentence) if refusal else None
    pods = {pod.name: pod for pod in observed.pods}
    names = [pod_name(observed.name, role, i) for role in ROLES for i in range(job.spec.replicas(role))]
    unready = [name for name in names if name not in pods or not pods[name].ready]
    # Report the first of them with a known cause.
    for name in unready:
        found = _trouble_of(pods[name], observed, now) if name in pods else refused
        if found is not None:
            return found
    if refused:  # for a child that is not a pod
        return refused
    if not unready:
        return Trouble()
    # Without a cause, report the newest failure, or the member that is not ready.
    if tally.counts:
        return _of_death(tally.counts[-1].death)
    others = f" and {len(unready) - 1} more" if len(unready) > 1 else ""
    return Trouble(WAITING, f"waiting for pod {unready[0]}{others} to be ready")


def slow_at(pod: Pod) -> datetime | None:
    """Returns when a pod without containers counts as slow, or None if it has started or has no
    node."""
    begun = any(not _is_being_made(container.waiting) for container in pod.containers)
    if pod.scheduled_at is None or begun or not pod.active or pod.deleting:
        return None
    return pod.scheduled_at + timedelta(seconds=START_SECONDS)


def _trouble_of(pod: Pod, observed: Observed, now: datetime) -> Trouble | None:
    scheduled = pod.conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False" and not pod.deleting:
        return _unscheduled(pod, scheduled, observed)
    for container in pod.containers:
        reason = container.waiting.get("reason") or ""
        if reason not in ON_ITS_WAY:
            said = (f"pod {pod.name}, container {container.name}", reason, container.waiting.get("message"))
            return Trouble(WAITS.get(reason, START), ": ".join(filter(None, said)))
    if pod.deleting:
        return Trouble("Terminating", f"pod {pod.name} is being deleted")
    if (silent := silent_end(pod, observed, now)) is not None:
        return _of_death(silent)
    if (end := pod.newest_death) is not None:
        return _of_death(Death.of_container(pod, end))
    if pod.failed:
        return _of_death(Death.of_pod(pod))
    if (when := slow_at(pod)) is not None and when <= now:
        return _slow(pod)
    return None


def _unscheduled(pod: Pod, scheduled: Mapping[str, Any], observed: Observed) -> Trouble:
    said = str(scheduled.get("message") or scheduled.get("reason") or "no reason given")
    if scheduled.get("reason") == GATED:
        return Trouble(GATED, f"pod {pod.name} waits for a queue to let it begin: {said}")
    sentence = f"pod {pod.name} cannot be scheduled: {said}"
    if "persistentvolumeclaim" not in said.lower():
        return Trouble(UNSCHEDULABLE, sentence)
    claim = observed.child("PersistentVolumeClaim", claim_name(observed.name))
    phase = ((claim or {}).get("status") or {}).get("phase") or "Pending"
    if claim is None or phase == "Bound":
        return Trouble(CLAIM_UNBOUND, sentence)
    kind = claim["spec"].get("storageClassName")
    backed = f"storage class {kind}" if kind else "no storage class, and the cluster seems to have no default"
    return Trouble(CLAIM_UNBOUND, f"{sentence} (claim {claim['metadata']['name']} is {phase}: {backed})")


def _slow(pod: Pod) -> Trouble:
    """Describes a pod without containers by its conditions, since the kubelet's events are not read
    here."""
    sandbox = pod.conditions.get("PodReadyToStartContainers", {}).get("status")
    cause = {
        "False": "its volumes or its network cannot be set up",
        "True": "its image is still being pulled",
    }.get(str(sandbox), "its image is still being pulled, or a volume cannot be mounted")
    where = f"pod {pod.name} has had a node for {START_SECONDS:.0f} s and no container"
    return Trouble(SLOW, f"{where}: {cause}; see: kubectl describe pod {pod.name}")


def _is_being_made(waiting: Mapping[str, Any]) -> bool:
    return waiting.get("reason") == "ContainerCreating"


def _of_death(death: Death) -> Trouble:
    if death.exit_code is None:
        reason = death.reason if REASON.fullmatch(death.reason) else "PodLost"
    elif death.reason == "OOMKilled":
        reason = death.reason
    elif death.words and REASON.fullmatch(death.words.reason):
        reason = death.words.reason
    else:
        reason = "Disrupted" if death.exit_code in KILLED_FROM_OUTSIDE else "ContainerFailed"
    return Trouble(reason, death.sentence)
