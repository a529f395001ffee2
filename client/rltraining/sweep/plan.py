"""Creates the validated jobs of a sweep from a manifest and options."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rltraining_api.job import RLTrainingJob
from rltraining_api.names import ANNOTATION_POINT, LABEL_SWEEP, NAME_MAX

from rltraining import jobfile
from rltraining.errors import UsageError
from rltraining.jobfile import JobFile
from rltraining.sweep.grid import Point, parse_axes, points
from rltraining.sweep.names import folder_names


@dataclass(frozen=True)
class Request:
    """The sweep options of the command line."""

    sweeps: tuple[str, ...] = ()
    """`path=value,value`, as given to --sweep."""
    seeds: int | None = None

    def __bool__(self) -> bool:
        return bool(self.sweeps) or self.seeds is not None


@dataclass(frozen=True)
class PlannedRun:
    """One job of a sweep, `<sweep>-<number>`. The names keep apart the output of jobs in a shared
    store."""

    name: str
    """The name, such as `learningRate=0.0001,seed=0`."""
    file: JobFile


@dataclass(frozen=True)
class SweepPlan:
    """A sweep."""

    name: str
    runs: tuple[PlannedRun, ...]


def plan(file: str, changes: Sequence[str], request: Request, name: str | None = None) -> SweepPlan:
    """Returns all jobs of a sweep. The default name of the sweep is the name of the manifest's job.

    Raises UsageError with a sentence for each problem of any of them.
    """
    # Compute the points and their names.
    axes = parse_axes(request.sweeps)
    origin = jobfile.source(file)
    base = _base(origin, changes, {axis.path: axis.values[0] for axis in axes})
    grid = points(axes, request.seeds, base.job.spec.seed)
    sweep = name or base.job.metadata.name
    _check_room(sweep, len(grid))
    names = folder_names(grid)
    # Validate each job, and collect the problems of all.
    files: list[JobFile] = []
    problems: dict[str, list[str]] = {}
    for point, called in zip(grid, names, strict=True):
        try:
            loaded = jobfile.load_from(origin, [*changes, *point.changes])
        except UsageError as error:
            for problem in error.problems:
                problems.setdefault(problem, []).append(called)
        else:
            files.append(_marked(loaded, sweep, len(files), point))
    if problems:
        raise UsageError(*(prefixed(problem, of, len(grid)) for problem, of in problems.items()))
    return SweepPlan(sweep, tuple(map(PlannedRun, names, files)))


def values_of(job: RLTrainingJob) -> Mapping[str, Any] | None:
    """Returns the values by path of a job's point. Returns None if the job belongs to no sweep."""
    annotations = job.metadata.annotations or {}
    try:
        values = json.loads(annotations[ANNOTATION_POINT])
    except (KeyError, ValueError):
        return None
    return values if isinstance(values, dict) else None


def title_of(job: RLTrainingJob) -> str:
    """Returns the title of a job's sweep, such as `cartpole: impala on CartPole-v1`."""
    sweep = (job.metadata.labels or {}).get(LABEL_SWEEP, job.metadata.name)
    return f"{sweep}: {job.spec.algorithm.title} on {job.spec.environment.id}"


def _base(origin: Any, changes: Sequence[str], first: Mapping[str, Any]) -> JobFile:
    """Loads the manifest without the sweep, or with the first value of each axis if the manifest is
    incomplete otherwise."""
    try:
        return jobfile.load_from(origin, changes)
    except UsageError:
        point = Point(0, first)
        return jobfile.load_from(origin, [*changes, *point.changes[:-1]])


def _check_room(sweep: str, number: int) -> None:
    """Raises UsageError if the last job's name would be too long."""
    last = f"{sweep}-{number - 1}"
    if len(last) > NAME_MAX:
        raise UsageError(
            f"metadata.name: the last job of the sweep would be called {last}, longer than {NAME_MAX} characters: "
            "shorten the name"
        )


def _marked(file: JobFile, sweep: str, number: int, point: Point) -> JobFile:
    metadata = file.job.metadata
    marks = {ANNOTATION_POINT: json.dumps(dict(point.values))}
    marked = metadata.model_copy(
        update={
            "name": f"{sweep}-{number}",
            "labels": {**(metadata.labels or {}), LABEL_SWEEP: sweep},
            "annotations": {**(metadata.annotations or {}), **marks},
        }
    )
    return replace(file, job=file.job.model_copy(update={"metadata": marked}))


def prefixed(problem: str, names: Sequence[str], total: int) -> str:
    """Prefixes a problem with the points that have it, unless all have it."""
    if len(names) == total:
        return problem
    more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
    return f"{names[0]}{more}: {problem}"
