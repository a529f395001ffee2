"""Waits until a job meets a condition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args

from rltraining_api.job import RLTrainingJob
from rltraining_api.manifest import ManifestError, read_job
from rltraining_api.status import Phase

from rltraining.sdk import errors
from rltraining.sdk.api import Json
from rltraining.sdk.jobs import Jobs, own_name

FINISHED = "finished"
Until = str | Callable[[RLTrainingJob], bool]
OnStatus = Callable[[RLTrainingJob], None]

PASSED_BY_SUCCESS = ("Pending", "Starting", "Running")
"""Phases that every successful job has passed."""


def typed(job: Json) -> RLTrainingJob:
    """Converts a raw job to its model. Raises UnreadableJobError."""
    try:
        return read_job(job)
    except ManifestError as error:
        raise errors.UnreadableJobError(
            *(
                f"job {own_name(job)} cannot be read: {problem}: upgrade rltraining"
                for problem in error.problems
            )
        ) from None


@dataclass(frozen=True)
class Goal:
    """The condition of a wait."""

    words: str
    """`Running` or `finished`, which completes "is not … yet"."""
    reached: Callable[[RLTrainingJob], bool]
    by_failure: bool = False
    """Whether a failed job can meet the condition."""

    @classmethod
    def of(cls, until: Until) -> Goal:
        """Creates the condition from `finished`, a phase, or a predicate. Raises ValueError for
        another word."""
        if callable(until):
            return cls("in the expected state", until)
        if until == FINISHED:
            return cls(until, lambda job: job.status.completion_time is not None)
        if until not in get_args(Phase):
            known = ", ".join((FINISHED, *get_args(Phase)))
            raise ValueError(f"until: must be a function or one of {known}, got {until}")
        return cls(until, lambda job: _in_phase(job, until), by_failure=until == "Failed")


def _in_phase(job: RLTrainingJob, phase: str) -> bool:
    status = job.status
    if status.completion_time is not None:
        return status.phase == phase or (status.phase == "Succeeded" and phase in PASSED_BY_SUCCESS)
    judged, asked = status.observed_generation, job.metadata.generation
    fresh = judged is None or asked is None or judged >= asked
    return fresh and status.phase == phase


def failure(job: RLTrainingJob) -> str:
    """Returns why a job failed: a sentence, and for user code the end of its traceback."""
    failed = (c.message for c in job.status.conditions if c.type == "Failed" and c.status == "True")
    return next(failed, "") or job.status.message or "no reason is known"


def wait(
    jobs: Jobs, name: str, until: Until, timeout: float | None = None, on_status: OnStatus | None = None
) -> RLTrainingJob:
    """Waits until the job meets the condition, and returns the job. `on_status` is called with the
    job after each change.

    Raises JobFailedError if it failed instead, JobOverError if it ended otherwise, JobDeletedError,
    JobNotFoundError, and WaitTimeoutError after `timeout` seconds.
    """
    goal = Goal.of(until)
    clock = jobs.api.timing.clock
    deadline = None if timeout is None else clock() + timeout
    job = typed(jobs.get(name))
    uid = job.metadata.uid
    seen = ""
    with jobs.translate_errors(name):
        for update in jobs.watched(name).updates(deadline):
            raw = next((item for item in update.objects.values() if item["metadata"].get("uid") == uid), None)
            if raw is None:
                raise errors.JobDeletedError(
                    f"job {name} was deleted during the wait; it was {job.status.phase}"
                )
            job = typed(raw)
            if on_status is not None and job.metadata.resource_version != seen:
                on_status(job)
            seen = job.metadata.resource_version or ""
            if _is_done(job, goal):
                return job
    why = f": {job.status.message}" if job.status.message else ""
    raise errors.WaitTimeoutError(
        f"job {name} is not {goal.words} after {timeout:g} s: it is {job.status.phase}{why}"
    )


def _is_done(job: RLTrainingJob, goal: Goal) -> bool:
    """Returns whether the condition is met. Raises JobFailedError or JobOverError if it cannot be
    met any more."""
    over = job.status.completion_time is not None
    if over and job.status.phase == "Failed" and not goal.by_failure:
        raise errors.JobFailedError(job, f"job {job.metadata.name} failed: {failure(job)}")
    if goal.reached(job):
        return True
    if over:
        raise errors.JobOverError(
            job, f"job {job.metadata.name} is {job.status.phase}, and cannot become {goal.words}"
        )
    return False


def wait_until_gone(jobs: Jobs, name: str, uid: str, timeout: float | None = None) -> None:
    """Waits until the job and its pods are gone. Raises WaitTimeoutError."""
    clock = jobs.api.timing.clock
    deadline = None if timeout is None else clock() + timeout
    left: list[str] = []
    for watched, owned in ((jobs.watched(name), False), (jobs.watched_pods(name), True)):
        with jobs.translate_errors(name):
            for update in watched.updates(deadline):
                left = [own_name(item) for item in update.objects.values() if uid in _uids(item, owned)]
                if not left:
                    break
        if left:
            raise errors.WaitTimeoutError(f"after {timeout:g} s these still exist: {', '.join(left)}")


def _uids(item: Json, owned: bool) -> list[str]:
    """Returns the uid of an object or, if `owned`, the uids of its owners."""
    metadata = item["metadata"]
    return (
        [owner["uid"] for owner in metadata.get("ownerReferences") or ()]
        if owned
        else [metadata.get("uid", "")]
    )
