"""The status, rebuilt whole at each pass from what is observed and what was decided. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from rltraining_api.contract import LearnerReport
from rltraining_api.job import RLTrainingJob
from rltraining_api.names import ROLES, Role, role_selector
from rltraining_api.status import Phase, RoleStatus, SamplerStatus, Status

from rltraining_operator.conditions import Conditions
from rltraining_operator.failures import TEXT_MAX, Verdict
from rltraining_operator.ledger import Tally, format_ranges
from rltraining_operator.members import Moves, last_words, wanted
from rltraining_operator.observed import Observed
from rltraining_operator.outcome import Outcome
from rltraining_operator.settings import STALL_SECONDS, Settings
from rltraining_operator.trouble import find_trouble

WARNINGS_MAX = 32


@dataclass(frozen=True)
class Decisions:
    """What this pass has decided."""

    tally: Tally
    outcome: Outcome | None
    over: bool
    """The outcome stands and nothing is active any more."""
    moves: Moves


def roll_up(
    job: RLTrainingJob, observed: Observed, made: Decisions, now: datetime, settings: Settings
) -> Status:
    """The status that goes with these decisions."""
    old, suspended = observed.status, job.spec.run_policy.suspend and made.outcome is None
    started = old.start_time or now
    roles = {role: _role_status(job, observed, made, role) for role in ROLES}
    tally = made.tally
    status = old.model_copy(
        update={
            "algorithm": job.spec.algorithm.name,
            "learner": roles["learner"],
            "sampler": SamplerStatus(
                **dict(roles["sampler"]), selector=role_selector(observed.name, "sampler")
            ),
            "restarts": roles["learner"].restarts + roles["sampler"].restarts,
            "failures": old.failures + tally.total(Verdict.FAILURE, Verdict.PERMANENT),
            "disruptions": old.disruptions + tally.total(Verdict.DISRUPTION),
            "ledger": tally.ledger,
            "start_time": None if suspended else started,
            "progress_time": None if suspended else old.progress_time or started,
            "completion_time": now if made.over else None,
            "observed_generation": observed.generation,
        }
    )
    status = _with_reports(status, observed, made, now, settings)
    phase = _phase(job, observed, made, roles, suspended)
    trouble = find_trouble(job, observed, tally)
    conditions = _conditions(job, observed, made, status, phase, trouble, now)
    return status.model_copy(
        update={
            "phase": phase,
            "message": _message(made, phase, trouble)[:TEXT_MAX],
            "conditions": conditions.items,
        }
    )


def recount(job: RLTrainingJob, observed: Observed, moves: Moves) -> Status:
    """The status of a job that is over: only its pods are still counted."""
    made = Decisions(Tally((), observed.status.ledger), None, True, moves)
    old = observed.status
    sampler = dict(_role_status(job, observed, made, "sampler")) | {"selector": old.sampler.selector}
    return old.model_copy(
        update={"learner": _role_status(job, observed, made, "learner"), "sampler": SamplerStatus(**sampler)}
    )


def _role_status(job: RLTrainingJob, observed: Observed, made: Decisions, role: Role) -> RoleStatus:
    pods = made.moves.staying(observed, role)
    ready = sum(pod.ready for pod in pods)
    old: RoleStatus = getattr(observed.status, role)
    return RoleStatus(
        replicas=len(pods),
        ready=ready,
        restarts=old.restarts + made.tally.restarts(role),
        summary=f"{ready}/{wanted(job, role)}",
        members=format_ranges(pod.index for pod in pods),
    )


def _with_reports(
    status: Status, observed: Observed, made: Decisions, now: datetime, settings: Settings
) -> Status:
    """Progress as the first learner tells it: at most every `progress_seconds`, and backwards only when a learner that
    has restored its state says so, not while it starts."""
    report = _report(observed)
    if report is None or report.state == "Starting":
        return status
    update: dict[str, Any] = {
        "checkpoint": report.checkpoint or status.checkpoint,
        "policy_uri": report.policy_uri or status.policy_uri,
        "warnings": tuple(f"{w.reason}: {w.message}"[:TEXT_MAX] for w in report.warnings[:WARNINGS_MAX]),
    }
    recent = status.progress_time is not None and now - status.progress_time < timedelta(
        seconds=settings.progress_seconds
    )
    first = status.progress.environment_steps == 0
    if made.outcome is not None or first or not recent:
        update["progress"] = report.progress
        advanced = report.progress.environment_steps != status.progress.environment_steps
        if advanced and status.start_time is not None:  # a suspended job makes no progress
            update["progress_time"] = now
    return status.model_copy(update=update)


def _report(observed: Observed) -> LearnerReport | None:
    """What the first learner says, or said last."""
    learners = observed.role("learner")
    if not learners:
        return None
    return observed.reports.get(learners[0].name) or last_words(learners[0])


def _phase(
    job: RLTrainingJob, observed: Observed, made: Decisions, roles: dict[Role, RoleStatus], suspended: bool
) -> Phase:
    old = observed.status.phase
    if made.outcome is not None:
        if made.over:
            return "Succeeded" if made.outcome.succeeded else "Failed"
        return "Running" if made.outcome.succeeded else old
    if suspended:
        return "Suspended"
    if roles["learner"].ready >= wanted(job, "learner") and roles["sampler"].ready:
        return "Running"
    begun = {role: sum(pod.running for pod in made.moves.staying(observed, role)) for role in ROLES}
    samplers = made.moves.staying(observed, "sampler")
    working = begun["sampler"] or (samplers and all(pod.succeeded for pod in samplers))
    if old == "Running" and begun["learner"] >= wanted(job, "learner") and working and not made.tally.counts:
        return "Running"  # a member that is busy with its end, or has been told that the run is done, is not restarting
    if old in ("Running", "Restarting") or any(pod.deaths for pod in observed.pods) or made.tally.counts:
        return "Restarting"
    return "Starting" if any(begun.values()) else "Pending"


def _message(made: Decisions, phase: Phase, trouble: str) -> str:
    if made.outcome is not None:
        return made.outcome.message.partition("\n")[0]
    if phase == "Suspended":
        return "suspended; it goes on when spec.runPolicy.suspend is false"
    return trouble


def _conditions(
    job: RLTrainingJob,
    observed: Observed,
    made: Decisions,
    status: Status,
    phase: Phase,
    trouble: str,
    now: datetime,
) -> Conditions:
    conditions = Conditions(status.conditions, observed.generation, now)
    if report := _report(observed):
        conditions = conditions.lift(report.conditions)
    if phase == "Suspended":
        conditions = conditions.set("Suspended", True, "JobSuspended", "runPolicy.suspend is true")
    elif conditions.get("Suspended"):
        conditions = conditions.set("Suspended", False, "JobResumed")
    conditions = _ready(conditions, job, status, phase, made)
    if phase == "Restarting" or conditions.get("Restarting"):
        restarting = phase == "Restarting"
        conditions = conditions.set(
            "Restarting", restarting, "MembersRestart" if restarting else phase, trouble
        )
    conditions = _progressing(conditions, status, phase, trouble, made, now)
    if (outcome := made.outcome) is not None:
        conditions = conditions.set(outcome.target, True, outcome.reason, outcome.message)
        if made.over:
            conditions = conditions.set(outcome.final, True, outcome.reason, outcome.message)
    return conditions


def _ready(
    conditions: Conditions, job: RLTrainingJob, status: Status, phase: Phase, made: Decisions
) -> Conditions:
    sentence = f"{status.learner.summary} learners and {status.sampler.summary} samplers are ready"
    if status.learner.ready >= wanted(job, "learner") and status.sampler.ready >= wanted(job, "sampler"):
        return conditions.set("Ready", True, "AllMembersReady", sentence)
    reason = "Finished" if made.outcome else "Suspended" if phase == "Suspended" else "MembersNotReady"
    return conditions.set("Ready", False, reason, sentence)


def _progressing(
    conditions: Conditions, status: Status, phase: Phase, trouble: str, made: Decisions, now: datetime
) -> Conditions:
    if made.outcome is not None or status.progress_time is None:
        return conditions.set("Progressing", False, "Finished" if made.outcome else "Suspended")
    if now < stalls_at(status.progress_time):
        return conditions.set("Progressing", True, "Training" if phase == "Running" else phase)
    since = f"no progress since {status.progress_time:%Y-%m-%dT%H:%M:%SZ}"
    return conditions.set("Progressing", False, "Stalled", f"{since}: {trouble}" if trouble else since)


def stalls_at(progress_time: datetime) -> datetime:
    """When a job without progress since then is called stalled."""
    return progress_time + timedelta(seconds=STALL_SECONDS)
