"""Reads the data of a run from its folder or from the API of a cluster."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from rltraining_api.curve import CurvePoint
from rltraining_api.job import RLTrainingJob
from rltraining_api.stores import is_below, policy_of, store_of
from rltraining_operator.local import read_events
from rltraining_operator.local.events import EVENTS_FILE

from rltraining import history, jobfile, workdir
from rltraining.errors import ClientError, UsageError
from rltraining.history import Row
from rltraining.run_events import RunEvent, from_api, from_log
from rltraining.sdk.client import RLTrainingClient
from rltraining.sdk.waiting import typed
from rltraining.summary import shown
from rltraining.units import count

NOT_IN_API = (
    "Policy lag, terms of the loss and the counters are not in the cluster's API, so they are missing here: the run's "
    "progress.jsonl and tensorboard/ have them, and Prometheus where it reads the learner's metrics."
)


@dataclass(frozen=True)
class Source:
    """The known data of a run."""

    job: RLTrainingJob
    origin: str
    """A description of where the data was read."""
    rows: tuple[Row, ...]
    """Measurements, oldest first, as in progress.jsonl."""
    events: tuple[RunEvent, ...]
    """Oldest first."""
    evaluations: tuple[Row, ...] = ()
    """Measurements that report an evaluation."""
    folder: Path | None = None
    """The run's folder, if it is on this machine."""
    policy: str | None = None
    """Folder or URI of the policy, if it can be read from here."""
    no_policy: str = ""
    """Otherwise the reason why not, as a sentence."""
    phase: str = ""
    """The job's phase, or the last state of a run without a supervising process."""
    missing: tuple[str, ...] = ()
    """One sentence for each part that is not available."""


def of_folder(folder: Path) -> Source:
    """Reads a run on this machine. Raises UsageError if the folder contains none."""
    if workdir.holds_sweep(folder):
        raise UsageError(
            f"{folder}: holds a sweep: name the folder of one of its runs, or use rltrain compare"
        )
    if not workdir.holds_run(folder):
        raise UsageError(f"{folder}: holds no run: name the folder of one, or a job in a cluster")
    missing = []
    job = workdir.last_state(folder)
    if job is None:
        job = jobfile.load(str(folder / workdir.JOB_FILE)).job
        missing.append(
            f"{workdir.STATUS_FILE} is not there or cannot be read: the outcome of the job is unknown."
        )
    rows = history.read(folder)
    if not rows:
        rows = _rows(job.status.curve)
    events: list[RunEvent] = []
    try:
        events = from_log(read_events(folder))
    except OSError as error:
        missing.append(f"{EVENTS_FILE} cannot be read: {error.strerror}.")
    policy = folder / "policy"
    return Source(
        job=job,
        origin=shown(folder),
        rows=rows,
        events=_with_transitions(job, [*events, *_learners(rows)]),
        evaluations=history.read_evaluations(folder),
        folder=folder,
        policy=str(policy) if workdir.holds_policy(policy) else None,
        no_policy="There is no policy: it is written when a run succeeds.",
        phase=_phase(job, folder),
        missing=tuple(missing),
    )


def of_job(client: RLTrainingClient, name: str) -> Source:
    """Reads a job in a cluster. Raises ClientError."""
    job = typed(client.jobs.get(name))
    missing = [NOT_IN_API]
    events: list[RunEvent] = []
    try:
        events = from_api(client.jobs.events(name), job.metadata.uid)
    except ClientError as error:
        missing.append(f"Events could not be read: {error}.")
    else:
        missing.append("A cluster forgets Events, after an hour by default: older ones are missing.")
    policy, no_policy = _policy(job)
    return Source(
        job=job,
        origin=f"job {name} in namespace {client.namespace}",
        rows=_rows(job.status.curve),
        events=_with_transitions(job, events),
        policy=policy,
        no_policy=no_policy,
        phase=job.status.phase,
        missing=tuple(missing),
    )


def _policy(job: RLTrainingJob) -> tuple[str | None, str]:
    """Returns the location of the policy, or the reason why it is not read. A pod of the job
    reported the status, so the location is derived from the spec and is read only if the status
    agrees."""
    written, store, location = job.status.policy_uri, store_of(job), policy_of(job)
    if written is None:
        return None, "There is no policy: it is written when a job succeeds."
    if not is_below(written, store):
        own = f"the job's checkpoint store {store}" if job.spec.checkpoint.uri else "the learner's pod"
        return None, f"status.policyUri is {written}, which is not in {own}: it was not read."
    return (
        location,
        "" if location else f"The policy is stored at {written}, which cannot be reached from here.",
    )


def _phase(job: RLTrainingJob, folder: Path) -> str:
    """Returns the job's phase. A run that is not over and has no running rltrain was stopped or
    killed."""
    phase = job.status.phase
    if job.status.completion_time is not None or workdir.is_held(folder):
        return phase
    return "Stopped" if phase == "Suspended" else "Interrupted"


def _rows(curve: Iterable[CurvePoint]) -> tuple[Row, ...]:
    """Converts a curve to measurements, with the speed between consecutive points."""
    points = list(curve)
    rates: list[float | None] = [None]
    for before, after in pairwise(points):
        seconds = after.seconds - before.seconds
        rates.append((after.environment_steps - before.environment_steps) / seconds if seconds > 0 else None)
    return tuple(
        {**point.to_dict(), "stepsPerSecond": rate} for point, rate in zip(points, rates, strict=False)
    )


def _learners(rows: Iterable[Row]) -> list[RunEvent]:
    """Returns the times at which another incarnation of the learner continued the run."""
    return [
        RunEvent(
            when,
            "Normal",
            "LearnerResumed",
            f"A restarted learner resumed at step {count(after['environmentSteps'])} or a little before",
        )
        for before, after in pairwise(rows)
        if before.get("run") != after.get("run") and (when := _moment(after)) is not None
    ]


def _moment(row: Row) -> datetime | None:
    """Returns the time of a measurement, or None if it is missing or damaged."""
    try:
        return datetime.fromtimestamp(row["time"], UTC)
    except (KeyError, TypeError, ValueError, OverflowError, OSError):
        return None


def _with_transitions(job: RLTrainingJob, events: Iterable[RunEvent]) -> tuple[RunEvent, ...]:
    """Returns the events with the last transition of each condition, oldest first."""
    transitions = [
        RunEvent(
            c.last_transition_time,
            "Condition",
            f"{c.type}: {c.status}",
            f"{c.reason}: {c.message}".removesuffix(": "),
        )
        for c in job.status.conditions
    ]
    return tuple(sorted([*events, *transitions], key=lambda event: event.time))
