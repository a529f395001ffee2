"""Whether a job is over, and how: decided once, then kept in the status."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from rltraining_api.job import RLTrainingJob
from rltraining_api.status import Status

from rltraining_operator.conditions import Conditions
from rltraining_operator.failures import Death, Verdict, permanent_message, permanent_reason
from rltraining_operator.ledger import Tally
from rltraining_operator.members import is_done, last_words
from rltraining_operator.observed import Observed


@dataclass(frozen=True)
class Outcome:
    """How a job ends. First the verdict (`SuccessCriteriaMet`, `FailureTarget`), and when no pod is active any more
    the end itself (`Complete`, `Failed`), as in batch/v1."""

    succeeded: bool
    reason: str
    message: str
    since: datetime
    """When the verdict fell."""

    @property
    def target(self) -> str:
        """The condition of the verdict."""
        return "SuccessCriteriaMet" if self.succeeded else "FailureTarget"

    @property
    def final(self) -> str:
        """The condition of the end."""
        return "Complete" if self.succeeded else "Failed"


def past_outcome(conditions: Conditions) -> Outcome | None:
    """The verdict that has fallen already."""
    for kind, succeeded in (("SuccessCriteriaMet", True), ("FailureTarget", False)):
        condition = conditions.get(kind)
        if condition is not None and condition.status == "True":
            return Outcome(succeeded, condition.reason, condition.message, condition.last_transition_time)
    return None


def decide_outcome(job: RLTrainingJob, observed: Observed, tally: Tally, now: datetime) -> Outcome | None:
    """The verdict, if it is due: success goes before failure, since what happens after the end does not matter.

    It is the first learner's word that counts: it holds all that is left of the run, and a learner that died just then
    would find nobody to go on with.
    """
    first = observed.first_learner
    if first is not None and is_done(first, observed, now):
        report = last_words(first)
        why = report.stop_reason if report else None
        return Outcome(True, "LearnersSucceeded", why or "the learner has finished", now)
    policy, status = job.spec.run_policy, observed.status
    if (death := tally.latest(Verdict.PERMANENT)) is not None:
        return Outcome(False, permanent_reason(death), permanent_message(death), now)
    failures = status.failures + tally.total(Verdict.FAILURE)
    if failures > policy.backoff_limit:
        message = f"{failures} failures are more than runPolicy.backoffLimit {policy.backoff_limit}"
        last = tally.latest(Verdict.FAILURE) or _any_death(observed)
        return Outcome(False, "BackoffLimitExceeded", f"{message}; {last.sentence}" if last else message, now)
    deadline = deadline_of(job, status)
    if deadline is not None and deadline <= now:
        seconds = policy.active_deadline_seconds
        return Outcome(False, "DeadlineExceeded", f"runPolicy.activeDeadlineSeconds {seconds} are over", now)
    return None


def deadline_of(job: RLTrainingJob, status: Status) -> datetime | None:
    """When the job must be over."""
    seconds, start = job.spec.run_policy.active_deadline_seconds, status.start_time
    if seconds is None or start is None or job.spec.run_policy.suspend:
        return None
    return start + timedelta(seconds=seconds)


def _any_death(observed: Observed) -> Death | None:
    """The last end of some pod, for a limit that was lowered below what had been counted."""
    ends = ((pod, pod.newest_death) for pod in observed.pods)
    return next((Death.of_container(pod, end) for pod, end in ends if end is not None), None)
