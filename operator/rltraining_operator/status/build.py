"""Builds the complete status at each pass from the observation and the decisions. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from rltraining_api.autoscale import AutoscaleStatus
from rltraining_api.job import RLTrainingJob
from rltraining_api.names import ROLES, Role, role_selector
from rltraining_api.status import Phase, RoleStatus, SamplerStatus, Status

from rltraining_operator.failures.endings import is_done
from rltraining_operator.failures.ledger import FailureCounts, format_ranges
from rltraining_operator.failures.pod_failure import FailureKind
from rltraining_operator.observe.admission import AdmissionFailure
from rltraining_operator.observe.observed import Observed
from rltraining_operator.pods import rollout
from rltraining_operator.pods.members import PodActions
from rltraining_operator.settings import STALL_SECONDS, Settings
from rltraining_operator.status.blocked import SILENT, WAITING, BlockedReason, find_blocked_reason
from rltraining_operator.status.bounds import MESSAGE_BYTES_MAX, clip
from rltraining_operator.status.conditions import Conditions, operator_conflict
from rltraining_operator.status.outcome import Outcome
from rltraining_operator.status.reports import find_silence, take_report

NO_PODS = RoleStatus(summary="0/0")


@dataclass(frozen=True)
class StatusInputs:
    """What a pass has observed and decided, from which its status is built."""

    job: RLTrainingJob
    observed: Observed
    actions: PodActions
    counts: FailureCounts
    outcome: Outcome | None = None
    over: bool = False
    """Whether the outcome is decided and no pod is active any more."""
    rejection: AdmissionFailure | None = None
    """A child that the cluster rejects and that is still needed."""
    autoscale: AutoscaleStatus | None = None
    """The number of samplers, for a job with `sampler.autoscale`."""

    @property
    def suspended(self) -> bool:
        """Whether the job is suspended and not over."""
        return self.job.spec.run_policy.suspend and self.outcome is None


def build_status(inputs: StatusInputs, now: datetime, settings: Settings) -> Status:
    """Builds the status for these decisions."""
    # Count the pods of each role.
    job, observed, counts = inputs.job, inputs.observed, inputs.counts
    old, suspended = observed.status, inputs.suspended
    started = old.start_time or now
    roles = _role_statuses(inputs)
    # Add the new failures to the counters and set the times.
    status = old.model_copy(
        update={
            "algorithm": job.spec.algorithm.title,
            **_by_field(inputs, roles, rollout.first_template(job, observed)),
            "autoscale": inputs.autoscale,
            "restarts": sum(role.restarts for role in roles.values()),
            "failures": old.failures + counts.total(FailureKind.FAILURE, FailureKind.PERMANENT),
            "disruptions": old.disruptions + counts.total(FailureKind.DISRUPTION),
            "ledger": counts.ledger,
            "start_time": None if suspended else started,
            "progress_time": None if suspended else old.progress_time or started,
            "completion_time": now if inputs.over else None,
            "observed_generation": observed.generation,
        }
    )
    # Copy the first learner's report.
    conditions = Conditions(old.conditions, observed.generation, now)
    over = inputs.outcome is not None
    status, conditions = take_report(job, observed, status, conditions, settings, over=over)
    # Determine the phase, and why the job does not run.
    phase = _phase(inputs, roles, now)
    blocked = find_blocked_reason(job, observed, counts, inputs.rejection, now, settings)
    if blocked.reason in ("", WAITING) and not over:
        blocked = find_silence(observed, now, settings) or blocked
    # Set the conditions and the message.
    conditions = _conditions(conditions, inputs, status, phase, blocked)
    return status.model_copy(
        update={
            "phase": phase,
            "message": clip(_message(inputs, phase, blocked), MESSAGE_BYTES_MAX),
            "conditions": conditions.items,
        }
    )


def recount(job: RLTrainingJob, observed: Observed, actions: PodActions) -> Status:
    """Returns the status of a finished job, in which only the pods are still counted."""
    inputs = StatusInputs(job, observed, actions, FailureCounts((), observed.status.ledger))
    fields = _by_field(inputs, _role_statuses(inputs), observed.status.sampler.template)
    return observed.status.model_copy(update=fields)


def members_in_words(status: Status) -> str:
    """Describes how many members are ready, such as `1/1 learners, 2/2 replay pods and 3/4
    samplers`."""
    learners = f"{status.learner.summary} learners"
    replays = f", {status.replay_pods.summary} replay pods" if status.replay_pods else ""
    return f"{learners}{replays} and {status.sampler.summary} samplers"


def _role_statuses(inputs: StatusInputs) -> dict[Role, RoleStatus]:
    return {role: _role_status(inputs, role) for role in ROLES}


def _by_field(
    inputs: StatusInputs, roles: dict[Role, RoleStatus], template: str
) -> dict[str, RoleStatus | None]:
    """Returns the fields of the status that describe the roles. Omits replay pods if the job never
    had any."""
    job, observed = inputs.job, inputs.observed
    sampler = SamplerStatus(
        **dict(roles["sampler"]),
        updated=rollout.count_updated(job, observed, inputs.actions.staying(observed, "sampler")),
        selector=role_selector(observed.name, "sampler"),
        template=template,
    )
    return {
        "learner": roles["learner"],
        "replay_pods": None if roles["replay"] == NO_PODS else roles["replay"],
        "sampler": sampler,
    }


def _role_status(inputs: StatusInputs, role: Role) -> RoleStatus:
    pods = inputs.actions.staying(inputs.observed, role)
    ready = sum(pod.ready for pod in pods)
    return RoleStatus(
        replicas=len(pods),
        ready=ready,
        restarts=inputs.observed.status.of_role(role).restarts + inputs.counts.restarts(role),
        summary=f"{ready}/{inputs.job.spec.replicas(role)}",
        indices=format_ranges(pod.index for pod in pods),
    )


def _phase(inputs: StatusInputs, roles: dict[Role, RoleStatus], now: datetime) -> Phase:
    job, observed = inputs.job, inputs.observed
    old = observed.status.phase
    if inputs.outcome is not None:
        if inputs.over:
            return "Succeeded" if inputs.outcome.succeeded else "Failed"
        return "Running" if inputs.outcome.succeeded else old
    if inputs.suspended:
        return "Suspended"
    if _can_train(job, {role: roles[role].ready for role in ROLES}):
        return "Running"
    staying = {role: inputs.actions.staying(observed, role) for role in ROLES}
    at_work = {
        role: sum(pod.running or is_done(pod, observed, now) for pod in pods)
        for role, pods in staying.items()
    }
    if old == "Running" and _can_train(job, at_work) and not inputs.counts.failures:
        # A member that is exiting, or is done because the run is over, is not restarting.
        return "Running"
    has_failures = inputs.counts.failures or any(pod.failures for pod in observed.pods)
    if old in ("Running", "Restarting") or has_failures:
        return "Restarting"
    return "Starting" if any(at_work.values()) else "Pending"


def _can_train(job: RLTrainingJob, members: dict[Role, int]) -> bool:
    """Returns whether these members suffice: all learners, and one of each other role of the
    job."""
    needed = {role: min(job.spec.replicas(role), 1) for role in ROLES} | {
        "learner": job.spec.replicas("learner")
    }
    return all(members[role] >= needed[role] for role in ROLES)


def _message(inputs: StatusInputs, phase: Phase, blocked: BlockedReason) -> str:
    if inputs.outcome is not None:
        return inputs.outcome.message.partition("\n")[0]
    if phase == "Suspended":
        return "Suspended. Set spec.runPolicy.suspend to false to resume."
    return blocked.sentence


def _conditions(
    conditions: Conditions, inputs: StatusInputs, status: Status, phase: Phase, blocked: BlockedReason
) -> Conditions:
    job, observed = inputs.job, inputs.observed
    if phase == "Suspended":
        conditions = conditions.set("Suspended", True, "JobSuspended", "runPolicy.suspend is true")
    elif conditions.get("Suspended"):
        conditions = conditions.set("Suspended", False, "JobResumed")
    conditions = _ready(conditions, inputs, status, phase, blocked)
    if phase == "Restarting" or conditions.get("Restarting"):
        restarting = phase == "Restarting"
        reason, message = ("MembersRestart", blocked.sentence) if restarting else (phase, "")
        conditions = conditions.set("Restarting", restarting, reason, message)
    if inputs.outcome is None and phase != "Suspended":
        all_ready = status.sampler.ready >= job.spec.replicas("sampler")
        conditions = rollout.set_condition(
            conditions, job, observed, updated=status.sampler.updated, all_ready=all_ready
        )
    if (rejection := inputs.rejection) is not None:
        conditions = conditions.set("ReplicaFailure", True, rejection.reason, rejection.sentence)
    elif conditions.get("ReplicaFailure"):
        conditions = conditions.set("ReplicaFailure", False, "Accepted")
    conditions = operator_conflict(conditions, observed.operators, observed.runner)
    conditions = _progressing(conditions, inputs, status, phase, blocked)
    if (outcome := inputs.outcome) is not None:
        conditions = conditions.set(outcome.target, True, outcome.reason, outcome.message)
        if inputs.over:
            conditions = conditions.set(outcome.final, True, outcome.reason, outcome.message)
    return conditions


def past_rejection(conditions: Conditions) -> AdmissionFailure | None:
    """Returns the rejection of an earlier pass. The rejection holds until the child is created or
    is no longer needed."""
    condition = conditions.get("ReplicaFailure")
    if condition is None or condition.status != "True":
        return None
    return AdmissionFailure(condition.reason, condition.message)


def _ready(
    conditions: Conditions, inputs: StatusInputs, status: Status, phase: Phase, blocked: BlockedReason
) -> Conditions:
    sentence = f"{members_in_words(status)} are ready"
    if all(status.of_role(role).ready >= inputs.job.spec.replicas(role) for role in ROLES):
        return conditions.set("Ready", True, "AllMembersReady", sentence)
    if inputs.outcome is not None or phase == "Suspended":
        return conditions.set("Ready", False, "Finished" if inputs.outcome else "Suspended", sentence)
    message = f"{sentence}: {blocked.sentence}" if blocked.sentence else sentence
    return conditions.set("Ready", False, blocked.reason or WAITING, message)


def _progressing(
    conditions: Conditions, inputs: StatusInputs, status: Status, phase: Phase, blocked: BlockedReason
) -> Conditions:
    if inputs.outcome is not None or status.progress_time is None:
        return conditions.set("Progressing", False, "Finished" if inputs.outcome else "Suspended")
    if blocked.reason in SILENT:
        return conditions.set("Progressing", "Unknown", blocked.reason, blocked.sentence)
    if conditions.now < stalls_at(status.progress_time):
        return conditions.set("Progressing", True, "Training" if phase == "Running" else phase)
    if inputs.observed.awaited and conditions.get("Progressing"):
        return conditions  # after an operator restart, until the learner answers
    since = f"no progress since {status.progress_time:%Y-%m-%dT%H:%M:%SZ}"
    message = f"{since}: {blocked.sentence}" if blocked.sentence else since
    return conditions.set("Progressing", False, "Stalled", message)


def stalls_at(progress_time: datetime) -> datetime:
    """Returns when a job without progress since `progress_time` counts as stalled."""
    return progress_time + timedelta(seconds=STALL_SECONDS)
