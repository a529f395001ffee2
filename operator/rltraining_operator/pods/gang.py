"""Integrates queues and gang schedulers: what each requires in the pods, and as separate objects.
Pure.

A run can start with all its learners, all its replay pods and one sampler, and continues with any
number of samplers. The first group must be scheduled together. Further samplers are scheduled when
there is room.

With Kueue each pod queues by itself. A pod group of Kueue holds back a lost pod until a pod with
another name replaces it, but members keep their names. The size of a pod group is fixed, but the
number of samplers is not.
"""

from __future__ import annotations

from typing import Any

from rltraining_api.job import RLTrainingJob
from rltraining_api.names import pod_group_name
from rltraining_api.scheduling import SchedulingPolicy

Manifest = dict[str, Any]

KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
VOLCANO_API, VOLCANO_GROUP = "scheduling.volcano.sh/v1beta1", "scheduling.k8s.io/group-name"
VOLCANO_SCHEDULER = "volcano"
COSCHEDULING_API, COSCHEDULING_GROUP = "scheduling.x-k8s.io/v1alpha1", "scheduling.x-k8s.io/pod-group"


def pod_labels(job: RLTrainingJob) -> dict[str, str]:
    """Returns labels by which a scheduler recognises the pods."""
    policy = _policy(job)
    if policy.kueue is not None:
        return {KUEUE_QUEUE: policy.kueue.queue_name}
    if policy.coscheduling is not None:
        return {COSCHEDULING_GROUP: pod_group_name(job.metadata.name)}
    return {}


def pod_annotations(job: RLTrainingJob) -> dict[str, str]:
    """Returns annotations by which a scheduler recognises the pods."""
    return {VOLCANO_GROUP: pod_group_name(job.metadata.name)} if _policy(job).volcano is not None else {}


def pod_spec(job: RLTrainingJob) -> Manifest:
    """Returns the scheduler's fields of a pod spec. A template may name another scheduler."""
    return {"schedulerName": VOLCANO_SCHEDULER} if _policy(job).volcano is not None else {}


def build_pod_group(job: RLTrainingJob, common: Manifest) -> Manifest | None:
    """Builds the PodGroup from the common part of a child, for schedulers that require one."""
    policy = _policy(job)
    spec: Manifest
    if (volcano := policy.volcano) is not None:
        spec = {"minMember": _at_once(job, volcano.min_available)}
        spec |= {"queue": volcano.queue} if volcano.queue else {}
        spec |= {"priorityClassName": volcano.priority_class_name} if volcano.priority_class_name else {}
        return common | {"apiVersion": VOLCANO_API, "spec": spec}
    if (coscheduling := policy.coscheduling) is not None:
        spec = {"minMember": _at_once(job, coscheduling.min_member)}
        seconds = coscheduling.schedule_timeout_seconds
        spec |= {"scheduleTimeoutSeconds": seconds} if seconds else {}
        return common | {"apiVersion": COSCHEDULING_API, "spec": spec}
    return None


def samplers_at_once(job: RLTrainingJob) -> int:
    """Returns how many samplers must exist before a gang scheduler places the learners and replay
    pods: 0 without a gang scheduler."""
    policy = _policy(job)
    if (volcano := policy.volcano) is not None:
        together = _at_once(job, volcano.min_available)
    elif (coscheduling := policy.coscheduling) is not None:
        together = _at_once(job, coscheduling.min_member)
    else:
        return 0
    return max(together - job.spec.replicas("learner") - job.spec.replicas("replay"), 0)


def _at_once(job: RLTrainingJob, asked: int | None) -> int:
    """Returns how many pods must be scheduled together: at most the number of pods of the job,
    because otherwise none would start."""
    fixed, samplers = job.spec.replicas("learner") + job.spec.replicas("replay"), job.spec.replicas("sampler")
    return min(asked or fixed + 1, fixed + samplers)


def _policy(job: RLTrainingJob) -> SchedulingPolicy:
    return job.spec.run_policy.scheduling_policy or NO_POLICY


NO_POLICY = SchedulingPolicy.model_construct()
