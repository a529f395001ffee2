"""Builds the complete status at each pass from the observation and the decisions. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from rltraining_api.autoscale import AutoscaleStatus
from rltraining_api.job import RLTrainingJob
from rltraining_api.names import ROLES, Role, role_selector
from rltraining_api.status import Phase, RoleStatus, SamplerStatus, Status

from rltraining_operator.bounds import MESSAGE_BYTES_MAX, clip
from rltraining_operator.conditions import Conditions
from rltraining_operator.failures import Verdict
from rltraining_operator.ledger import Tally, format_ranges
from rltraining_operator.members import Moves, is_done
from rltraining_operator.observed import Observed
from rltraining_operator.outcome import Outcome
from rltraining_operator.refusals import Refusal
from rltraining_operator.reports import find_silence, take_report
from rltraining_operator.settings import STALL_SECONDS, Settings
from rltraining_operator.trouble import SILENT, WAITING, Trouble, find_trouble

NO_PODS = RoleStatus(summary="0/0")


@dataclass(frozen=True)
class Decisions:
    """The decisions of this pass."""

    tally: Tally
    outcome: Outcome | None
    over: bool
    """Whether the outcome is decided and no pod is active any more."""
    moves: Moves
    refusal: Refusal | None = None
    """A child that the cluster rejects and that is still needed."""
    autoscale: AutoscaleStatus | None = None
    """The number of samplers, for a job with `sampler.autoscale`."""


def roll_up(
    job: RLTrainingJob, observed: Observed, made: Decisions, now: datetime, settings: Settings
) -> Status:
    """Builds the status for these decisions."""
    # Count the pods of each role.
    old, suspended = observed.status, job.spec.run_policy.suspend and made.outcome is None
    started = old.start_time or now
    roles = _role_statuses(job, observed, made)
    tally = made.tally
    # Add the new failures to the counters and set the times.
    status = old.model_copy(
        update={
            "algorithm": job.spec.algorithm.title,
            **_by_field(observed, roles),
            "autoscale": made.autoscale,
            "restarts": sum(role.restarts for role in roles.values()),
            "failures": old.failures + tally.total(Verdict.FAILURE, Verdict.PERMANENT),
            "disruptions": old.disruptions + tally.total(Verdict.DISRUPTION),
            "ledger": tally.ledger,
            "start_time": None if suspended else started,
            "progress_time": None if suspended else old.progress_time or started,
            "completion_time": now if made.over else None,
            "observed_generation": observed.generation,
        }
    )
    # Copy the first learner's report.
    conditions = Conditions(old.conditions, observed.generation, now)
    over = made.outcome is not None
    taken = take_report(status, conditions, observed, now, settings, over=over)
    # Determine the phase, and why the job does not run.
    phase = _phase(job, observed, made, roles, suspended, now)
    trouble = find_trouble(job, observed, tally, made.refusal, now)
    if trouble.reason in ("", WAITING) and not over:
        trouble = find_silence(observed, now, settings) or trouble
    # Set the conditions and the message.
    conditions = _conditions(taken.conditions, job, observed, made, taken.status, phase, trouble, now)
    return taken.status.model_copy(
        update={
            "phase": phase,
            "message": clip(_message(made, phase, trouble), MESSAGE_BYTES_MAX),
            "conditions": conditions.items,
        }
    )


def recount(job: RLTrainingJob, observed: Observed, moves: Moves) -> Status:
    """Returns the status of a finished job, in which only the pods are still counted."""
    made = Decisions(Tally((), observed.status.ledger), None, True, moves)
    return observed.status.model_copy(update=_by_field(observed, _role_statuses(job, observed, made)))


def members_in_words(status: Status) -> str:
    """Describes how many members are ready, such as `1/1 learners, 2/2 replay pods and 3/4
    samplers`."""
    learners = f"{status.learner.summary} learners"
    replays = f", {status.replay_pods.summary} replay pods" if status.replay_pods else ""
    return f"{learners}{replays} and {status.sampler.summary} samplers"


def _role_statuses(job: RLTrainingJob, observed: Observed, made: Decisions) -> dict[Role, RoleStatus]:
    return {role: _role_status(job, observed, made, role) for role in ROLES}


def _by_field(observed: Observed, roles: dict[Role, RoleStatus]) -> dict[str, RoleStatus | None]:
    """Returns the fields of the status that describe the roles. Omits replay pods if the job never
    had any."""
    selector = role_selector(observed.name, "sampler")
    return {
        "learner": roles["learner"],
        "replay_pods": None if roles["replay"] == NO_PODS else roles["replay"],
        "sampler": SamplerStatus(**dict(roles["sampler"]), selector=selector),
    }


def _role_status(job: RLTrainingJob, observed: Observed, made: Decisions, role: Role) -> RoleStatus:
    pods = made.moves.staying(observed, role)
    ready = sum(pod.ready for pod in pods)
    return RoleStatus(
        replicas=len(pods),
        ready=ready,
        restarts=observed.status.of_role(role).restarts + made.tally.restarts(role),
        summary=f"{ready}/{job.spec.replicas(role)}",
        indices=format_ranges(pod.index for pod in pods),
    )


def _phase(
    job: RLTrainingJob,
    observed: Observed,
    made: Decisions,
    roles: dict[Role, RoleStatus],
    suspended: bool,
    now: datetime,
) -> Phase:
    old = observed.status.phase
    if made.outcome is not None:
        if made.over:
            return "Succeeded" if made.outcome.succeeded else "Failed"
        return "Running" if made.outcome.succeeded else old
    if suspended:
        return "Suspended"
    if _can_train(job, {role: roles[role].ready for role in ROLES}):
        return "Running"
    staying = {role: made.moves.staying(observed, role) for role in ROLES}
    at_work = {
        role: sum(pod.running or is_done(pod, observed, now) for pod in pods)
        for role, pods in staying.items()
    }
    if old == "Running" and _can_train(job, at_work) and not made.tally.counts:
        # A member that is exiting, or is done because the run is over, is not restarting.
        return "Running"
    if old in ("Running", "Restarting") or any(pod.deaths for pod in observed.pods) or made.tally.counts:
        return "Restarting"
    return "Starting" if any(at_work.values()) else "Pending"


def _can_train(job: RLTrainingJob, members: dict[Role, int]) -> bool:
    """Returns whether these members suffice: all learners, and one of each other role of the
    job."""
    needed = {role: min(job.spec.replicas(role), 1) for role in ROLES} | {
        "learner": job.spec.replicas("learner")
    }
    return all(members[role] >= needed[role] for role in ROLES)


def _message(made: Decisions, phase: Phase, trouble: Trouble) -> str:
    if made.outcome is not None:
        return made.outcome.message.partition("\n")[0]
    if phase == "Suspended":
        return "suspended; it goes on when spec.runPolicy.suspend is false"
    return trouble.sentence


def _conditions(
    conditions: Conditions,
    job: RLTrainingJob,
    observed: Observed,
    made: Decisions,
    status: Status,
    phase: Phase,
    trouble: Trouble,
    now: datetime,
) -> Conditions:
    if phase == "Suspended":
        conditions = conditions.set("Suspended", True, "JobSuspended", "runPolicy.suspend is true")
    elif conditions.get("Suspended"):
        conditions = conditions.set("Suspended", False, "JobResumed")
    conditions = _ready(conditions, job, status, phase, trouble, made)
    if phase == "Restarting" or conditions.get("Restarting"):
        restarting = phase == "Restarting"
        reason, message = ("MembersRestart", trouble.sentence) if restarting else (phase, "")
        conditions = conditions.set("Restarting", restarting, reason, message)
    if made.refusal is not None:
        conditions = conditions.set("ReplicaFailure", True, made.refusal.reason, made.refusal.sentence)
    elif conditions.get("ReplicaFailure"):
        conditions = conditions.set("ReplicaFailure", False, "Accepted")
    conditions = _progressing(conditions, observed, status, phase, trouble, made, now)
    if (outcome := made.outcome) is not None:
        conditions = conditions.set(outcome.target, True, outcome.reason, outcome.message)
        if made.over:
            conditions = conditions.set(outcome.final, True, outcome.reason, outcome.message)
    return conditions


def past_refusal(conditions: Conditions) -> Refusal | None:
    """Returns the rejection of an earlier pass. The rejection holds until the child is created or
    is no longer needed."""
    condition = conditions.get("ReplicaFailure")
    if condition is None or condition.status != "True":
        return None
    return Refusal(condition.reason, condition.message)


def _ready(
    conditions: Conditions,
    job: RLTrainingJob,
    status: Status,
    phase: Phase,
    trouble: Trouble,
    made: Decisions,
) -> Conditions:
    sentence = f"{members_in_words(status)} are ready"
    if all(status.of_role(role).ready >= job.spec.replicas(role) for role in ROLES):
        return conditions.set("Ready", True, "AllMembersReady", sentence)
    if made.outcome is not None or phase == "Suspended":
        return conditions.set("Ready", False, "Finished" if made.outcome else "Suspended", sentence)
    message = f"{sentence}: {trouble.sentence}" if trouble.sentence else sentence
    return conditions.set("Ready", False, trouble.reason or WAITING, message)


def _progressing(
    conditions: Conditions,
    observed: Observed,
    status: Status,
    phase: Phase,
    trouble: Trouble,
    made: Decisions,
    now: datetime,
) -> Conditions:
    if made.outcome is not None or status.progress_time is None:
        return conditions.set("Progressing", False, "Finished" if made.outcome else "Suspended")
    if trouble.reason in SILENT:
        return conditions.set("Progressing", "Unknown", trouble.reason, trouble.sentence)
    if now < stalls_at(status.progress_time):
        return conditions.set("Progressing", True, "Training" if phase == "Running" else phase)
    if observed.awaited and conditions.get("Progressing"):
        return conditions  # after an operator restart, until the learner answers
    since = f"no progress since {status.progress_time:%Y-%m-%dT%H:%M:%SZ}"
    message = f"{since}: {trouble.sentence}" if trouble.sentence else since
    return conditions.set("Progressing", False, "Stalled", message)


def stalls_at(progress_time: datetime) -> datetime:
    """Returns when a job without progress since `progress_time` counts as stalled."""
    return progress_time + timedelta(seconds=STALL_SECONDS)
