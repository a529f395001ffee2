"""Every decision there is about a job, as one pure function: `plan(job, observed, now) -> Plan`.

The same input gives the same plan, and a plan that was carried out leaves nothing to do: planned again, it is empty.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from rltraining_api.job import RLTrainingJob
from rltraining_api.names import KIND
from rltraining_api.status import Status

from rltraining_operator import children
from rltraining_operator.cluster import Event, Manifest, Ref
from rltraining_operator.conditions import Conditions
from rltraining_operator.ledger import Tally, tally
from rltraining_operator.members import Moves, bring_to_size, remove
from rltraining_operator.observed import Observed, Pod
from rltraining_operator.outcome import Outcome, deadline_of, decide_outcome, past_outcome
from rltraining_operator.pods import build_pod
from rltraining_operator.rollup import Decisions, recount, roll_up, stalls_at
from rltraining_operator.settings import FINISH_SECONDS, Settings
from rltraining_operator.story import tell


@dataclass(frozen=True)
class Plan:
    """What to do, in this order: the status first, for what it counts is lost with the pods that are deleted."""

    status: Status | None = None
    """The status to write; None: it is as it should be."""
    delete: tuple[Ref, ...] = ()
    apply: tuple[Manifest, ...] = ()
    create: tuple[Manifest, ...] = ()
    """Children to make: those that pods need before the pods."""
    events: tuple[Event, ...] = ()
    requeue_after: float | None = None
    """Seconds until something is due though nothing changes."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do now."""
        return not (self.status or self.delete or self.apply or self.create or self.events)


NOTHING = Plan()


def plan(job: RLTrainingJob, observed: Observed, now: datetime, settings: Settings | None = None) -> Plan:
    """What to do about a job."""
    settings = settings or Settings()
    if not observed.ours:
        return NOTHING
    conditions = Conditions(observed.status.conditions, observed.generation, now)
    if conditions.true("Complete") or conditions.true("Failed"):
        return _plan_after_end(job, observed, conditions, now)
    return _plan_life(job, observed, conditions, now, settings)


def plan_invalid(observed: Observed, now: datetime) -> Plan:
    """What to do about an object that cannot be read as a job: say so, and if it runs already, leave it running."""
    if not observed.ours:
        return NOTHING
    old = observed.status
    conditions = Conditions(old.conditions, observed.generation, now)
    if conditions.true("Complete") or conditions.true("Failed"):
        return NOTHING
    if old.start_time is None:
        conditions = conditions.set("Failed", True, "InvalidSpec", observed.invalid)
        update = {"phase": "Failed", "completion_time": now}
    else:
        conditions = conditions.set("Progressing", False, "InvalidSpec", observed.invalid)
        update = {}
    update |= {
        "message": observed.invalid,
        "conditions": conditions.items,
        "observed_generation": observed.generation,
    }
    status = old.model_copy(update=update)
    return (
        NOTHING
        if status == old
        else Plan(status, events=(Event("Warning", "InvalidSpec", observed.invalid),))
    )


def _plan_life(
    job: RLTrainingJob, observed: Observed, conditions: Conditions, now: datetime, settings: Settings
) -> Plan:
    """From the first pass to the end."""
    outcome, counted = past_outcome(conditions), Tally((), observed.status.ledger)
    if outcome is None:
        counted = tally(observed, job.spec.run_policy.pod_failure_policy)
        outcome = decide_outcome(job, observed, counted, now)
    moves = _moves(job, observed, outcome, now)
    made = Decisions(counted, outcome, _is_over(job, observed, outcome), moves)
    status = roll_up(job, observed, made, now, settings)
    create, apply = _children(job, observed, moves, settings) if _wants_pods(job, outcome) else ((), ())
    return Plan(
        status=status if status != observed.status else None,
        delete=_refs(moves),
        apply=apply,
        create=create,
        events=tell(observed.status, status, made, observed.name),
        requeue_after=_requeue(job, observed, made, status, now, settings),
    )


def _plan_after_end(job: RLTrainingJob, observed: Observed, conditions: Conditions, now: datetime) -> Plan:
    """What is over stays as it is; only pods and, in the end, the job itself are cleaned up."""
    policy = job.spec.run_policy
    ended = max(c.last_transition_time for c in conditions.items if c.type in ("Complete", "Failed"))
    if policy.ttl_seconds_after_finished is not None:
        expiry = ended + timedelta(seconds=policy.ttl_seconds_after_finished)
        if expiry <= now:
            return Plan(delete=(Ref(KIND, observed.name, observed.uid),))
    moves = remove(observed, _to_clean(job, observed.pods), now)
    status = recount(job, observed, moves)
    due = [*moves.due, expiry] if policy.ttl_seconds_after_finished is not None else moves.due
    return Plan(
        status=status if status != observed.status else None,
        delete=_refs(moves),
        requeue_after=_seconds_until(due, now),
    )


def _wants_pods(job: RLTrainingJob, outcome: Outcome | None) -> bool:
    return outcome is None and not job.spec.run_policy.suspend


def _moves(job: RLTrainingJob, observed: Observed, outcome: Outcome | None, now: datetime) -> Moves:
    if _wants_pods(job, outcome):
        return bring_to_size(job, observed, now)
    if outcome is None:
        return remove(observed, observed.pods, now)
    grace_over = outcome.since + timedelta(seconds=FINISH_SECONDS)
    if outcome.succeeded and now < grace_over and any(pod.active for pod in observed.pods):
        return remove(observed, (), now)
    return remove(observed, _to_clean(job, observed.pods), now)


def _to_clean(job: RLTrainingJob, pods: Iterable[Pod]) -> list[Pod]:
    """The pods that `cleanPodPolicy` does not leave after the end."""
    match job.spec.run_policy.clean_pod_policy:
        case "All":
            return list(pods)
        case "Running":
            return [pod for pod in pods if pod.active]
        case "None":
            return []


def _is_over(job: RLTrainingJob, observed: Observed, outcome: Outcome | None) -> bool:
    """Whether the end can be declared: no pod is active, or those that are may go on."""
    if outcome is None:
        return False
    return job.spec.run_policy.clean_pod_policy == "None" or not any(pod.active for pod in observed.pods)


def _children(
    job: RLTrainingJob, observed: Observed, moves: Moves, settings: Settings
) -> tuple[tuple[Manifest, ...], tuple[Manifest, ...]]:
    """Children to create and children to apply."""
    owner = children.owner_reference(job, observed.uid)
    kept = [children.build_service(job, owner), children.build_config_map(job, owner, observed.uid)]
    once = [children.build_secret(job, owner, observed.entropy), children.build_claim(job, owner)]
    apply = [child for child in kept if not children.covers(_found(observed, child), child)]
    create = [child for child in once if child is not None and _found(observed, child) is None]
    create += [build_pod(job, owner, role, index, settings) for role, index in moves.create]
    return tuple(create), tuple(apply)


def _found(observed: Observed, child: Manifest) -> Manifest | None:
    return observed.child(child["kind"], child["metadata"]["name"])


def _refs(moves: Moves) -> tuple[Ref, ...]:
    gently = [Ref("Pod", pod.name, pod.uid) for pod in moves.delete]
    return (*gently, *(Ref("Pod", pod.name, pod.uid, grace_seconds=0) for pod in moves.force))


def _requeue(
    job: RLTrainingJob, observed: Observed, made: Decisions, status: Status, now: datetime, settings: Settings
) -> float | None:
    due = list(made.moves.due)
    if made.outcome is not None:
        due.append(made.outcome.since + timedelta(seconds=FINISH_SECONDS))
        return _seconds_until(due, now)
    if (deadline := deadline_of(job, observed)) is not None:
        due.append(deadline)
    if status.progress_time is not None:
        due.append(stalls_at(status.progress_time))
        if any(pod.running for pod in observed.role("learner")):
            due.append(now + timedelta(seconds=settings.progress_seconds))
    return _seconds_until(due, now)


def _seconds_until(due: Iterable[datetime], now: datetime) -> float | None:
    """The first of the times that lie ahead."""
    ahead = [(when - now).total_seconds() for when in due if when > now]
    return min(ahead, default=None)
