"""Describes the state of a sweep, with a row for each run. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from rltraining_api.job import RLTrainingJob

from rltraining.snapshot import Snapshot
from rltraining.summary import failure
from rltraining.sweep.names import short_paths, text
from rltraining.sweep.plan import values_of
from rltraining.units import plural

WAITING = "Waiting"
OVER = ("Succeeded", "Failed")
FINE = ("Running", "Succeeded", "Stopping", "Stopped")


@dataclass(frozen=True)
class Row:
    """A run."""

    name: str
    point: Mapping[str, str]
    """The values as text, by the ends of their paths, and the seed."""
    phase: str = WAITING
    steps: int = 0
    mean_return: float | None = None
    seconds: float | None = None
    """How long the run has been running."""
    why: str = ""
    """The cause of a failure, or why the run does not run."""


@dataclass(frozen=True)
class SweepSnapshot:
    """The state of all runs of a sweep."""

    title: str
    rows: tuple[Row, ...]
    elapsed: float
    notice: str = ""

    @property
    def counts(self) -> str:
        """A summary such as `2 of 6 runs over (1 failed), 1 running`."""
        phases = Counter(row.phase for row in self.rows)
        over = sum(phases[phase] for phase in OVER)
        failed = f" ({phases['Failed']} failed)" if phases["Failed"] else ""
        running = len(self.rows) - over - phases[WAITING] - phases["Stopped"]
        return f"{over} of {plural(len(self.rows), 'run')} over{failed}" + (
            f", {running} running" if running else ""
        )


def point_of(job: RLTrainingJob) -> dict[str, str]:
    """Returns the values of a job, such as `{"learningRate": "0.0001", "seed": "0"}`."""
    values = {**(values_of(job) or {}), "seed": job.spec.seed}
    short = short_paths(list(values))
    return {short[path]: text(value) for path, value in values.items()}


def row_of(name: str, snapshot: Snapshot) -> Row:
    """Returns the row of a run that runs or has just ended."""
    why = failure(snapshot.status) if snapshot.phase == "Failed" else snapshot.message
    progress = snapshot.status.progress
    return Row(
        name,
        point_of(snapshot.job),
        snapshot.phase,
        progress.environment_steps,
        progress.mean_return,
        snapshot.elapsed,
        "" if snapshot.phase in FINE else why.strip().split("\n")[0],
    )


def stored_row(name: str, job: RLTrainingJob, *, continues: bool) -> Row:
    """Returns the row of a run that does not run: it is over or waiting.

    `continues`: whether it has succeeded by earlier stop rules, and waits to be continued by others."""
    status = job.status
    if continues or status.completion_time is None:
        return Row(name, point_of(job), steps=status.progress.environment_steps)
    started = status.start_time or status.completion_time
    return row_of(name, Snapshot(job, (status.completion_time - started).total_seconds()))
