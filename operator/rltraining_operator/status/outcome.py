"""Decides whether a job is over, and how. The outcome is decided once and then stored in the
status."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from rltraining_api.job import RLTrainingJob
from rltraining_api.status import Status

from rltraining_operator.failures.endings import is_done, termination_report
from rltraining_operator.failures.ledger import FailureCounts
from rltraining_operator.failures.pod_failure import (
    FailureKind,
    PodFailure,
    permanent_message,
    permanent_reason,
)
from rltraining_operator.observe.observed import Observed
from rltraining_operator.status.conditions import Conditions


@dataclass(frozen=True)
class Outcome:
    """The end of a job. First the outcome (`SuccessCriteriaMet`, `FailureTarget`), and when no pod
    is active any more, the end itself (`Complete`, `Failed`), as in batch/v1."""

    succeeded: bool
    reason: str
    message: str
    since: datetime
    """When the outcome was decided."""

    @property
    def target(self) -> str:
        """The condition of the outcome."""
        return "SuccessCriteriaMet" if self.succeeded else "FailureTarget"

    @property
    def final(self) -> str:
        """The condition of the end."""
        return "Complete" if self.succeeded else "Failed"


def past_outcome(conditions: Conditions) -> Outcome | None:
    """Returns the outcome that an earlier pass decided, or None."""
    for kind, succeeded in (("SuccessCriteriaMet", True), ("FailureTarget", False)):
        condition = conditions.get(kind)
        if condition is not None and condition.status == "True":
            return Outcome(succeeded, condition.reason, condition.message, condition.last_transition_time)
    return None


def decide_outcome(
    job: RLTrainingJob, observed: Observed, counts: FailureCounts, now: datetime
) -> Outcome | None:
    """Decides the outcome, or returns None while the job continues. Success precedes failure, since
    failures after the end do not matter.

    The first learner decides: it holds all results of the run, and another learner that fails at
    this time could not continue training without it.
    """
    # Succeed when the first learner is done.
    first = observed.first_learner
    if first is not None and is_done(first, observed, now):
        report = termination_report(first)
        why = report.stop_reason if report else None
        return Outcome(True, "LearnersSucceeded", why or "the learner has finished", now)
    # Fail after a permanent failure.
    policy, status = job.spec.run_policy, observed.status
    if (failure := counts.latest(FailureKind.PERMANENT)) is not None:
        return Outcome(False, permanent_reason(failure), permanent_message(failure), now)
    # Fail after too many failures.
    failures = status.failures + counts.total(FailureKind.FAILURE)
    if failures > policy.backoff_limit:
        message = f"{failures} failures are more than runPolicy.backoffLimit {policy.backoff_limit}"
        last = counts.latest(FailureKind.FAILURE) or _any_failure(observed)
        return Outcome(False, "BackoffLimitExceeded", f"{message}; {last.sentence}" if last else message, now)
    # Fail after the deadline.
    deadline = deadline_of(job, status)
    if deadline is not None and deadline <= now:
        seconds = policy.active_deadline_seconds
        return Outcome(False, "DeadlineExceeded", f"runPolicy.activeDeadlineSeconds {seconds} are over", now)
    return None


def deadline_of(job: RLTrainingJob, status: Status) -> datetime | None:
    """Returns when the job must be over, or None without a deadline or while it is suspended."""
    seconds, start = job.spec.run_policy.active_deadline_seconds, status.start_time
    if seconds is None or start is None or job.spec.run_policy.suspend:
        return None
    return start + timedelta(seconds=seconds)


def _any_failure(observed: Observed) -> PodFailure | None:
    """Returns the last failure of some pod, for a limit that was lowered below the counted
    failures."""
    ends = ((pod, pod.newest_failure) for pod in observed.pods)
    return next((PodFailure.of_container(pod, end) for pod, end in ends if end is not None), None)
