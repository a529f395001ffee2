"""Why a job is not running, in one sentence: the question that people ask of a status."""

from __future__ import annotations

from rltraining_api.job import RLTrainingJob
from rltraining_api.names import ROLES, pod_name

from rltraining_operator.failures import Death
from rltraining_operator.ledger import Tally
from rltraining_operator.members import wanted
from rltraining_operator.observed import Observed, Pod

ON_ITS_WAY = ("", "ContainerCreating", "PodInitializing", "CrashLoopBackOff")
"""Reasons to wait that are no trouble, or of which the last end tells more."""


def find_trouble(job: RLTrainingJob, observed: Observed, tally: Tally) -> str:
    """What keeps the first member from being ready: real trouble before mere waiting, learners before samplers; empty
    when all are ready."""
    pods = {pod.name: pod for pod in observed.pods}
    names = [pod_name(observed.name, role, index) for role in ROLES for index in range(wanted(job, role))]
    unready = [name for name in names if name not in pods or not pods[name].ready]
    for name in unready:
        if name in pods and (sentence := _trouble_of(pods[name])):
            return sentence
    if not unready:
        return ""
    if tally.counts:
        return tally.counts[-1].death.sentence
    others = f" and {len(unready) - 1} more" if len(unready) > 1 else ""
    return f"waiting for pod {unready[0]}{others} to be ready"


def _trouble_of(pod: Pod) -> str:
    scheduled = pod.conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False":
        return f"pod {pod.name} cannot be scheduled: {scheduled.get('message') or scheduled.get('reason')}"
    for container in pod.containers:
        reason = container.waiting.get("reason") or ""
        if reason not in ON_ITS_WAY:
            message = container.waiting.get("message")
            return ": ".join(filter(None, (f"pod {pod.name}, container {container.name}", reason, message)))
    if pod.deleting:
        return f"pod {pod.name} is being deleted"
    if (end := pod.newest_death) is not None:
        return Death.of_container(pod, end).sentence
    if pod.failed:
        return Death.of_pod(pod).sentence
    return ""
