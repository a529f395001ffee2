"""Decides everything about a job in one pure function: `plan(job, observed, now) -> Plan`.

The same input gives the same plan. After a plan has been carried out, the next plan is empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from rltraining_api.autoscale import AutoscaleStatus
from rltraining_api.job import RLTrainingJob
from rltraining_api.names import KIND
from rltraining_api.status import Status

from rltraining_operator.cluster import Event, Manifest, Ref
from rltraining_operator.failures.ledger import FailureCounts, count_failures
from rltraining_operator.observe.mounts import looks_due
from rltraining_operator.observe.observed import Observed, Pod
from rltraining_operator.pods.autoscale import follow
from rltraining_operator.pods.build import build_pod, encryption_of
from rltraining_operator.pods.children import CHILDREN, Parent, covers, owner_reference
from rltraining_operator.pods.members import PodActions, reconcile_replicas, remove
from rltraining_operator.settings import FINISH_SECONDS, REJECTION_RETRY_SECONDS, Settings
from rltraining_operator.status.blocked import slow_at
from rltraining_operator.status.bounds import MESSAGE_BYTES_MAX, clip
from rltraining_operator.status.build import StatusInputs, build_status, past_rejection, recount, stalls_at
from rltraining_operator.status.conditions import Conditions
from rltraining_operator.status.events import status_events
from rltraining_operator.status.outcome import Outcome, deadline_of, decide_outcome, past_outcome
from rltraining_operator.status.reports import report_due_at


@dataclass(frozen=True)
class Plan:
    """The actions for a job, in the order of the fields. The status is written before pods are
    deleted, because the deleted pods are the evidence of the failures that it counts."""

    status: Status | None = None
    """The status to write, or None if it has not changed."""
    delete: tuple[Ref, ...] = ()
    apply: tuple[Manifest, ...] = ()
    create: tuple[Manifest, ...] = ()
    """Children to create. The objects that pods need precede the pods."""
    events: tuple[Event, ...] = ()
    """Events about changes. Created and deleted children get their events after the action."""
    requeue_after: float | None = None
    """Seconds until the next pass is due even if nothing changes."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do now."""
        return not (self.status or self.delete or self.apply or self.create or self.events)


NO_ACTIONS = Plan()


def plan(job: RLTrainingJob, observed: Observed, now: datetime, settings: Settings | None = None) -> Plan:
    """Returns the actions for a job."""
    settings = settings or Settings()
    # Ignore jobs that are being deleted or have another controller.
    if not observed.managed:
        return NO_ACTIONS
    conditions = Conditions(observed.status.conditions, observed.generation, now)
    # After the end, only clean up.
    if conditions.true("Complete") or conditions.true("Failed"):
        sized = _with_samplers(job, observed.status.autoscale)
        return _plan_after_end(sized, observed, conditions, now, settings)
    settings = replace(settings, encryption=encryption_of(job, observed, settings))
    # Set the number of samplers. All further decisions are about a job with this number in its spec.
    autoscale = follow(job, observed, now, settings)
    sized = _with_samplers(job, autoscale)
    return _plan_life(sized, replace(observed, job=sized), conditions, autoscale, now, settings)


def plan_invalid(observed: Observed, now: datetime) -> Plan:
    """Returns the actions for an object that is not a valid job: report the error, and leave
    running pods alone."""
    if not observed.managed:
        return NO_ACTIONS
    # After the end, delete the job when its TTL has expired.
    old = observed.status
    conditions = Conditions(old.conditions, observed.generation, now)
    if conditions.true("Complete") or conditions.true("Failed"):
        expiry = _expiry(conditions, observed.ttl_seconds)
        if expiry is not None and expiry <= now:
            return Plan(delete=(Ref(KIND, observed.name, observed.uid),))
        return Plan(requeue_after=_seconds_until([expiry] if expiry else [], now))
    # Report the error in a condition. A job that never started fails, and a running job continues.
    ttl = None
    if old.observed_generation is None and not observed.pods:  # it was never a valid job
        conditions = conditions.set("Failed", True, "InvalidSpec", observed.invalid)
        update, ttl = {"phase": "Failed", "completion_time": now}, observed.ttl_seconds
    else:
        conditions = conditions.set("Progressing", False, "InvalidSpec", observed.invalid)
        update = {}
    # Build the status.
    message = clip(observed.invalid, MESSAGE_BYTES_MAX)
    update |= {
        "message": message,
        "conditions": conditions.items,
        "observed_generation": observed.generation,
    }
    status = old.model_copy(update=update)
    if status == old:
        return NO_ACTIONS
    events = (Event("Warning", "InvalidSpec", message),)
    return Plan(status, events=events, requeue_after=_seconds_to_expiry(status, ttl, now))


def _plan_life(
    job: RLTrainingJob,
    observed: Observed,
    conditions: Conditions,
    autoscale: AutoscaleStatus | None,
    now: datetime,
    settings: Settings,
) -> Plan:
    """Plans a job from its first pass to its end."""
    # Count new failures and decide whether the job is over. An outcome is final once decided.
    outcome, counts = past_outcome(conditions), FailureCounts((), observed.status.ledger)
    if outcome is None:
        counts = count_failures(observed, job.spec.run_policy.pod_failure_policy, now)
        outcome = decide_outcome(job, observed, counts, now)
    # Decide which pods to create and to delete.
    actions = _pod_actions(job, observed, outcome, now)
    # Build the children that are missing or out of date.
    wants_pods = _wants_pods(job, outcome)
    parent = Parent(job, observed, settings, ended=outcome is not None)
    create, apply = _children(parent, actions) if wants_pods else ((), ())
    past = past_rejection(conditions) if create or apply else None
    # Build the new status from these decisions.
    over, rejection = _is_over(job, observed, outcome), observed.rejection or past
    inputs = StatusInputs(job, observed, actions, counts, outcome, over, rejection, autoscale)
    status = build_status(inputs, now, settings)
    return Plan(
        status=_if_new(status, observed),
        delete=(*_unwanted(parent), *_refs(actions)),
        apply=apply,
        create=create,
        events=status_events(status, inputs),
        requeue_after=_requeue(inputs, status, now, settings),
    )


def _plan_after_end(
    job: RLTrainingJob, observed: Observed, conditions: Conditions, now: datetime, settings: Settings
) -> Plan:
    """Plans a job that is over. Its status is final. Only its pods, and after the TTL the job
    itself, are deleted."""
    # Delete the job when its TTL has expired.
    expiry = _expiry(conditions, job.spec.run_policy.ttl_seconds_after_finished)
    if expiry is not None and expiry <= now:
        return Plan(delete=(Ref(KIND, observed.name, observed.uid),))
    # Delete the pods that `cleanPodPolicy` does not keep.
    actions = remove(observed, _to_clean(job, observed.pods), now)
    return Plan(
        status=_if_new(recount(job, observed, actions), observed),
        delete=(*_unwanted(Parent(job, observed, settings, ended=True)), *_refs(actions)),
        requeue_after=_seconds_until([*actions.due, expiry] if expiry else actions.due, now),
    )


def _expiry(conditions: Conditions, ttl_seconds: int | None) -> datetime | None:
    """Returns when a finished job should be deleted, or None without a TTL."""
    if ttl_seconds is None:
        return None
    ended = max(c.last_transition_time for c in conditions.items if c.type in ("Complete", "Failed"))
    return ended + timedelta(seconds=ttl_seconds)


def _seconds_to_expiry(status: Status, ttl_seconds: int | None, now: datetime) -> float | None:
    """Returns the seconds until a job that ends in this pass is deleted. No other event triggers
    the next pass."""
    expiry = _expiry(Conditions(status.conditions, 0, now), ttl_seconds)
    return None if expiry is None else max((expiry - now).total_seconds(), 0.0)


def _if_new(status: Status, observed: Observed) -> Status | None:
    return status if status != observed.status or observed.unreadable else None


def _with_samplers(job: RLTrainingJob, autoscale: AutoscaleStatus | None) -> RLTrainingJob:
    """Returns the job with the number of samplers that it should have now."""
    return job if autoscale is None else job.with_samplers(autoscale.target)


def _wants_pods(job: RLTrainingJob, outcome: Outcome | None) -> bool:
    return outcome is None and not job.spec.run_policy.suspend


def _pod_actions(
    job: RLTrainingJob, observed: Observed, outcome: Outcome | None, now: datetime
) -> PodActions:
    if _wants_pods(job, outcome):
        return reconcile_replicas(job, observed, now)
    if outcome is None:
        return remove(observed, observed.pods, now)
    grace_over = outcome.since + timedelta(seconds=FINISH_SECONDS)
    if outcome.succeeded and now < grace_over and any(pod.active for pod in observed.pods):
        return remove(observed, (), now)
    return remove(observed, _to_clean(job, observed.pods), now)


def _to_clean(job: RLTrainingJob, pods: Iterable[Pod]) -> list[Pod]:
    """Returns the pods that `cleanPodPolicy` deletes after the end."""
    match job.spec.run_policy.clean_pod_policy:
        case "All":
            return list(pods)
        case "Running":
            return [pod for pod in pods if pod.active]
        case "None":
            return []


def _is_over(job: RLTrainingJob, observed: Observed, outcome: Outcome | None) -> bool:
    """Returns whether the end can be declared: no pod is active, or active pods are kept."""
    if outcome is None:
        return False
    return job.spec.run_policy.clean_pod_policy == "None" or not any(pod.active for pod in observed.pods)


def _children(parent: Parent, actions: PodActions) -> tuple[tuple[Manifest, ...], tuple[Manifest, ...]]:
    """Returns the children to create and the children to apply."""
    # Select the children that are missing or differ.
    create, apply = [], []
    for child in CHILDREN:
        manifest = child.build(parent)
        if manifest is None:
            continue
        found = parent.observed.child(child.kind, child.name(parent.observed))
        if child.changes and not covers(found, manifest):
            apply.append(manifest)
        elif not child.changes and found is None:
            create.append(manifest)
    # Build the missing pods.
    owner = owner_reference(parent.job, parent.observed.uid)
    create += [build_pod(parent.job, owner, role, index, parent.settings) for role, index in actions.create]
    return tuple(create), tuple(apply)


def _unwanted(parent: Parent) -> Iterator[Ref]:
    """Yields existing children that the job should not have any more."""
    for child in CHILDREN:
        if child.wanted is None or child.wanted(parent):
            continue
        name = child.name(parent.observed)
        found = parent.observed.child(child.kind, name)
        if found is not None and "deletionTimestamp" not in found["metadata"]:
            yield Ref(child.kind, name, found["metadata"]["uid"])


def _refs(actions: PodActions) -> tuple[Ref, ...]:
    gently = [Ref("Pod", pod.name, pod.uid) for pod in actions.delete]
    return (*gently, *(Ref("Pod", pod.name, pod.uid, grace_seconds=0) for pod in actions.force))


def _requeue(inputs: StatusInputs, status: Status, now: datetime, settings: Settings) -> float | None:
    """Returns the seconds until the next pass is due, or None if only a change triggers it."""
    job, observed = inputs.job, inputs.observed
    # Wait for pods that will be replaced or forced out.
    due = list(inputs.actions.due)
    # At the end, wait for the remaining pods and the TTL.
    if inputs.outcome is not None:
        due.append(inputs.outcome.since + timedelta(seconds=FINISH_SECONDS))
        ttl = job.spec.run_policy.ttl_seconds_after_finished if inputs.over else None
        waits = (_seconds_until(due, now), _seconds_to_expiry(status, ttl, now))
        return min((wait for wait in waits if wait is not None), default=None)
    # While the job runs, wait for its deadline and for the next attempt to create rejected
    # children.
    if (deadline := deadline_of(job, status)) is not None:
        due.append(deadline)
    if inputs.rejection is not None:
        due.append(_retry_at(status, now))
    # Wait until a job stalls, a pod counts as slow, or the next events or report are due.
    if status.progress_time is not None:
        due.append(stalls_at(status.progress_time))
        due += filter(None, map(slow_at, observed.pods))
        due += looks_due(observed.pods, now)
        if observed.first_learner is not None and observed.first_learner.running:
            asked = report_due_at(status, settings)
            later = now + timedelta(seconds=settings.progress_seconds)
            due.append(asked if asked is not None and now < asked < later else later)
    return _seconds_until(due, now)


def _retry_at(status: Status, now: datetime) -> datetime:
    """Returns when rejected children are created again, unless another event triggers a pass
    before. The delay grows with the time since the first rejection."""
    shortest, longest = REJECTION_RETRY_SECONDS
    condition = Conditions(status.conditions, 0, now).get("ReplicaFailure")
    elapsed = (now - condition.last_transition_time).total_seconds() if condition else 0.0
    return now + timedelta(seconds=min(max(elapsed / 2, shortest), longest))


def _seconds_until(due: Iterable[datetime], now: datetime) -> float | None:
    """Returns the seconds until the first of these times that is in the future, or None."""
    ahead = [(when - now).total_seconds() for when in due if when > now]
    return min(ahead, default=None)
