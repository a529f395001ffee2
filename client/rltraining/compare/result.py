"""Reads the results of one run, from its folder or from a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rltraining_api.curve import CurvePoint
from rltraining_api.job import RLTrainingJob

from rltraining import history, workdir
from rltraining.errors import UsageError
from rltraining.jobfile import load, manifest
from rltraining.summary import shown
from rltraining.sweep.folder import run_names
from rltraining.sweep.plan import values_of
from rltraining.workdir import JOB_FILE

GOAL_MET = ("stop.meanReturn is met", "stop.smoothedReturn is met")


@dataclass(frozen=True)
class Result:
    """The results of a run."""

    source: str
    """The sweep of the run, or else the name of the run."""
    name: str
    title: str
    """The title, such as `impala on CartPole-v1`."""
    seed: int
    phase: str
    values: Mapping[str, Any] = field(default_factory=dict)
    """The values of its point of the sweep, by path, without the seed."""
    alike: object = None
    """Runs that differ only in the seed have equal `alike` and `values`."""
    mean_return: float | None = None
    """The final or latest return."""
    has_goal: bool = False
    """Whether a stop rule requires a return."""
    reached: bool = False
    """Whether that rule has ended the run."""
    curve: tuple[CurvePoint, ...] = ()

    @property
    def failed(self) -> bool:
        return self.phase == "Failed"

    @property
    def steps(self) -> int | None:
        """Environment steps so far, or None before the first."""
        return self.curve[-1].environment_steps if self.curve else None

    @property
    def seconds(self) -> float | None:
        """Seconds of training."""
        return self.curve[-1].seconds if self.curve else None

    @property
    def rate(self) -> float | None:
        """Environment steps per second, over the whole run. None if there are too few points."""
        if len(self.curve) < 2:
            return None
        first, last = self.curve[0], self.curve[-1]
        seconds = last.seconds - first.seconds
        return (last.environment_steps - first.environment_steps) / seconds if seconds > 0 else None


def of_folder(folder: Path) -> list[Result]:
    """Returns the results of a run's folder, or of all runs of a sweep's. Raises UsageError for
    other folders."""
    if workdir.holds_sweep(folder):
        return [_of_run(folder / name, shown(folder), name) for name in run_names(folder)]
    if workdir.holds_run(folder):
        return [_of_run(folder, "", shown(folder))]
    raise UsageError(f"{folder}: holds neither a run nor a sweep: name a folder that rltrain run created")


def of_job(job: RLTrainingJob, source: str, name: str, curve: Sequence[CurvePoint] | None = None) -> Result:
    """Returns the results of a job.

    Args:
        source: Its sweep, or empty.
        curve: A more complete curve than the status contains.
    """
    status = job.status
    points = tuple(status.curve if curve is None else curve)
    progress = status.progress.mean_return
    return Result(
        source=source or name,
        name=name,
        title=f"{job.spec.algorithm.title} on {job.spec.environment.id}",
        seed=job.spec.seed,
        phase=status.phase,
        values=(values_of(job) or {}) if source else {},
        alike=source or _without_seed(job),
        mean_return=points[-1].mean_return if progress is None and points else progress,
        has_goal=_has_goal(job),
        reached=status.phase == "Succeeded" and status.message.startswith(GOAL_MET),
        curve=points,
    )


def _of_run(folder: Path, source: str, name: str) -> Result:
    job = workdir.last_state(folder) or load(str(folder / JOB_FILE)).job
    result = of_job(job, source, name, history.curve(history.read(folder)))
    with suppress(UsageError):  # a manifest of another version
        # A run that a sweep with other stop rules does not continue still has the earlier ones in its status.
        result = replace(result, has_goal=result.has_goal and _has_goal(load(str(folder / JOB_FILE)).job))
    return result


def _has_goal(job: RLTrainingJob) -> bool:
    return job.spec.stop.mean_return is not None or job.spec.stop.smoothed_return is not None


def _without_seed(job: RLTrainingJob) -> str:
    spec = dict(manifest(job)["spec"])
    spec.pop("seed", None)
    return repr(spec)
