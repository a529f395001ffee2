"""Implements sweeps in a cluster: a job for each point, selected by a label."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

from rltraining_api.job import RLTrainingJob
from rltraining_api.names import GROUP, LABEL_SWEEP, SINGULAR

from rltraining.commands import INTERRUPTED
from rltraining.compare.command import notes
from rltraining.compare.result import of_job
from rltraining.compare.row import rows
from rltraining.compare.table import tables
from rltraining.errors import ClientError, Exit, UsageError
from rltraining.printable import say
from rltraining.sdk.client import RLTrainingClient
from rltraining.sdk.errors import JobDeletedError, JobExistsError, JobNotFoundError
from rltraining.sdk.waiting import typed
from rltraining.snapshot import Snapshot
from rltraining.sweep.display import choose
from rltraining.sweep.plan import SweepPlan, title_of
from rltraining.sweep.snapshot import OVER, Row, SweepSnapshot, row_of
from rltraining.units import plural

DELETED = "Deleted"


def selector(sweep: str) -> str:
    """Returns the label selector of a sweep's jobs."""
    return f"{LABEL_SWEEP}={sweep}"


def create(client: RLTrainingClient, planned: SweepPlan, code: Sequence[Path] = ()) -> list[RLTrainingJob]:
    """Creates all jobs, `<sweep>-<number>`, with these files as code. If the API server rejects one
    of them, creates none."""
    # Validate all jobs.
    files = [run.file for run in planned.runs]
    for file in files:
        _check_writes_alone(file.job)
        try:
            client.create(file, dry_run=True, code=code)
        except JobExistsError:
            raise JobExistsError(
                f"job {file.job.metadata.name} exists already: give the sweep another name with --name, or delete the "
                f"earlier one: rltrain delete --sweep {planned.name}"
            ) from None
    # Create them.
    made: list[RLTrainingJob] = []
    for run, file in zip(planned.runs, files, strict=True):
        try:
            made.append(client.create(file, code=code))
        except ClientError as error:
            error.problems += (
                f"{len(made)} of {plural(len(files), 'job')} were created: "
                f"rltrain delete --sweep {planned.name} deletes them",
            )
            raise
        say(f"{SINGULAR}.{GROUP}/{made[-1].metadata.name} created ({run.name})")
    return made


def watch(client: RLTrainingClient, sweep: str, *, plain: bool) -> int:
    """Shows a sweep until all its jobs are over, then the comparison. Returns the exit code."""
    clock = client.jobs.api.timing.clock
    began, there = clock(), jobs(client, sweep)
    shown = {row.name: row for row in sorted(map(_row, there), key=lambda row: (len(row.name), row.name))}
    with closing(choose(sys.stdout, plain=plain)) as display, client.jobs.translate_errors():
        try:
            for update in client.jobs.watched(selector=selector(sweep)).updates():
                shown |= {row.name: row for row in (_row(typed(change.object)) for change in update.changes)}
                left = {item["metadata"]["name"] for item in update.objects.values()}
                for name in shown.keys() - left:
                    shown[name] = replace(shown[name], phase=DELETED, why="")
                display.show(SweepSnapshot(title_of(there[0]), tuple(shown.values()), clock() - began))
                if all(row.phase in (*OVER, DELETED) for row in shown.values()):
                    break
        except KeyboardInterrupt:
            display.close()
            say(f"The jobs continue; see their progress with: rltrain compare {sweep}", err=True)
            return INTERRUPTED
    if all(row.phase == DELETED for row in shown.values()):
        raise JobDeletedError(f"all jobs of sweep {sweep} were deleted")
    compared = rows([of_job(job, sweep, job.metadata.name) for job in jobs(client, sweep)])
    say(f"\n{tables(compared)}")
    for note in notes(compared):
        say(note, err=True)
    return Exit.OK if all(row.phase == "Succeeded" for row in shown.values()) else Exit.FAILED


def jobs(client: RLTrainingClient, sweep: str) -> list[RLTrainingJob]:
    """Returns the jobs of a sweep. Raises JobNotFoundError if there are none."""
    found = client.list(selector(sweep))
    if not found:
        raise JobNotFoundError(f"there is no job of a sweep {sweep} in namespace {client.namespace}")
    return found


def delete(client: RLTrainingClient, sweep: str, *, wait: bool) -> None:
    """Deletes all jobs of a sweep."""
    for job in jobs(client, sweep):
        with suppress(JobNotFoundError):  # another client was faster
            client.delete(job.metadata.name, wait=wait)
        say(f"{job.metadata.name}: deleted")


def _check_writes_alone(job: RLTrainingJob) -> None:
    """Raises UsageError if jobs would resume from each other's checkpoints."""
    volume = job.spec.checkpoint.volume
    if volume is not None and volume.claim_name is not None:
        raise UsageError(
            "spec.checkpoint.volume.claimName: all jobs of a sweep would write into one claim: use claimTemplate, "
            "or spec.checkpoint.uri"
        )


def _row(job: RLTrainingJob) -> Row:
    status = job.status
    ended = status.completion_time or status.report_time
    seconds = (ended - status.start_time).total_seconds() if ended and status.start_time else 0.0
    return row_of(job.metadata.name, Snapshot(job, max(0.0, seconds)))
