"""Rolls out a changed `sampler.template`: replaces the samplers of an older template, a few at a
time.

Each sampler pod has the hash of its template in an annotation. The hash covers only the user's
template, so that an operator with other defaults restarts no pod. Pure.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from rltraining_api.job import RLTrainingJob
from rltraining_api.names import ANNOTATION_TEMPLATE
from rltraining_api.roles import PodTemplate
from rltraining_api.status import Status

from rltraining_operator.observe.admission import QUOTA_EXCEEDED
from rltraining_operator.observe.observed import Observed, Pod
from rltraining_operator.pods.sampler_room import NEEDED
from rltraining_operator.status.conditions import Conditions

UPDATED = "SamplersUpdated"
"""The condition: false while samplers are replaced, absent before the first change."""
REPLACED_AT_ONCE_PERCENT = 10
"""How many of the samplers may be missing for the roll-out; at least one."""


def template_hash(template: PodTemplate) -> str:
    """Returns a short hash of a template. The order of keys does not matter."""
    content = json.dumps(template.to_dict(), sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:10]


def first_template(job: RLTrainingJob, observed: Observed) -> str:
    """Returns the hash of the template of pods without annotation, which an older operator created.
    Their template could not change until this operator first saw the job."""
    return observed.status.sampler.template or template_hash(job.spec.sampler.template)


def count_updated(job: RLTrainingJob, observed: Observed, pods: Iterable[Pod]) -> int:
    """Returns how many of these samplers have the present template."""
    wanted, first = template_hash(job.spec.sampler.template), first_template(job, observed)
    return sum(_hash_of(pod, first) == wanted for pod in pods)


def pods_to_update(job: RLTrainingJob, observed: Observed) -> list[Pod]:
    """Returns the samplers to replace now.

    Samplers are replaced while at most a tenth of them, or one, is missing or not ready. Samplers
    that are not ready are replaced first, then the highest index. If a new pod does not become ready, the
    others therefore keep the older template. Samplers that do not exist because of a quota are not
    waited for. None is replaced while samplers may have to give way to a learner or replay pod, and
    would not be created again.
    """
    # Find the samplers that wait for their replacement.
    outdated = _outdated(job, observed)
    if not outdated or not _others_have_places(job, observed):
        return []
    # Count the samplers that are missing for any other reason.
    count, waiting = job.spec.replicas("sampler"), {pod.uid for pod in outdated}
    samplers = [pod for pod in observed.role("sampler") if pod.index < count]
    expected = len(samplers) if _quota_refused_pods(observed.status) else count
    ready = sum(pod.ready for pod in samplers if pod.uid not in waiting)
    missing = expected - len(outdated) - ready
    # Replace as many as may be missing in addition.
    room = max(0, replaced_at_once(count) - missing)
    return sorted(outdated, key=lambda pod: (pod.ready, -pod.index))[:room]


def set_condition(
    conditions: Conditions, job: RLTrainingJob, observed: Observed, *, updated: int, all_ready: bool
) -> Conditions:
    """Sets the condition of a job that should have pods.

    Args:
        updated: Number of samplers that have the present template and are not being deleted.
        all_ready: Whether the requested number of samplers is ready.
    """
    count = job.spec.replicas("sampler")
    if _outdated(job, observed):
        at_once = f"replacing at most {replaced_at_once(count)} at a time"
        message = f"{updated} of {count} samplers have the present sampler.template; {at_once}"
        return conditions.set(UPDATED, False, "RollingUpdate", message)
    if conditions.get(UPDATED) and not conditions.true(UPDATED):
        if not all_ready:
            message = (
                f"{updated} of {count} samplers have the present sampler.template, and not all are ready"
            )
            return conditions.set(UPDATED, False, "RollingUpdate", message)
        # Without a number, because the message stays when `sampler.replicas` changes.
        message = "all samplers have the present sampler.template"
        return conditions.set(UPDATED, True, "AllSamplersUpdated", message)
    return conditions


def is_in_progress(status: Status) -> bool:
    """Returns whether a roll-out has begun and not ended, according to the stored status."""
    return any(found.type == UPDATED and found.status == "False" for found in status.conditions)


def replaced_at_once(count: int) -> int:
    """Returns how many of `count` samplers may be missing for the roll-out."""
    return max(1, count * REPLACED_AT_ONCE_PERCENT // 100)


def _outdated(job: RLTrainingJob, observed: Observed) -> list[Pod]:
    """Returns the samplers of an older template that may still work. Others are replaced or deleted
    anyway, or are done."""
    wanted, first = template_hash(job.spec.sampler.template), first_template(job, observed)
    count = job.spec.replicas("sampler")
    return [
        pod
        for pod in observed.role("sampler")
        if _hash_of(pod, first) != wanted
        and pod.index < count
        and pod.active
        and not (pod.deleting or pod.ended_well)
    ]


def _quota_refused_pods(status: Status) -> bool:
    """Returns whether the last pass found that a quota keeps pods of the job away."""
    return any(found.type == "Ready" and found.reason == QUOTA_EXCEEDED for found in status.conditions)


def _others_have_places(job: RLTrainingJob, observed: Observed) -> bool:
    """Returns whether all learners and replay pods exist, and none waits for a node or a queue.

    Deletions of a pass must not depend on the answers to its requests or on the time: the second
    plan after a rejection would otherwise count a pod that the first plan deleted as lost.
    """
    pods = (pod for role in NEEDED for pod in observed.role(role))
    placed = sum(not pod.deleting and pod.unscheduled_since is None for pod in pods)
    return placed >= sum(job.spec.replicas(role) for role in NEEDED)


def _hash_of(pod: Pod, first: str) -> str:
    return pod.annotations.get(ANNOTATION_TEMPLATE, first)
