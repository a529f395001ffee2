"""Changes the stop rules of a sweep that is resumed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from rltraining_api.errors import ManifestError
from rltraining_api.introspect import dotted
from rltraining_api.job import RLTrainingJob
from rltraining_api.overrides import parse_path

from rltraining import workdir
from rltraining.errors import UsageError
from rltraining.jobfile import JobFile, load
from rltraining.run import met_rule
from rltraining.sweep.folder import run_names
from rltraining.sweep.plan import prefixed, values_of
from rltraining.workdir import JOB_FILE

STOP = "spec.stop"


def check(changes: Sequence[str]) -> None:
    """Raises UsageError if a change of --set is not one of stop rules."""
    for change in changes:
        if not _is_within(path := _path(change), STOP):
            raise UsageError(
                "--set and --seed: a resumed sweep uses its original jobs, with other stop rules at most: "
                f"leave out {path}, or start a new sweep"
            )


def change(folder: Path, changes: Sequence[str]) -> None:
    """Writes other stop rules into the manifests of all runs.

    Raises UsageError before any is written if one of them would be invalid or is in use."""
    # Validate each job, and collect the problems of all.
    names = run_names(folder)
    files: dict[str, JobFile] = {}
    problems: dict[str, list[str]] = {}
    for name in names:
        path = str(folder / name / JOB_FILE)
        try:
            files[name] = load(path, changes)
        except UsageError as error:
            for problem in error.problems:
                problems.setdefault(problem.removeprefix(f"{path}: "), []).append(name)
        else:
            _check_not_swept(files[name].job, changes)
    if problems:
        raise UsageError(*(prefixed(problem, of, len(names)) for problem, of in problems.items()))
    # Write all manifests, while no other command uses one of the runs.
    with ExitStack() as held:
        for name in names:
            held.enter_context(workdir.held(folder / name, "resume"))
        for name, file in files.items():
            with workdir.written(folder / name):
                file.save(folder / name / JOB_FILE)


def continues(before: RLTrainingJob, now: RLTrainingJob) -> bool:
    """Returns whether a run that has succeeded, with this last state, met a rule that its manifest no longer
    has."""
    old, new = (job.spec.stop.model_dump(by_alias=True) for job in (before, now))
    rule = met_rule(before)
    return bool(old != new if rule is None else old.get(rule) != new.get(rule))


def _check_not_swept(job: RLTrainingJob, changes: Sequence[str]) -> None:
    """Raises UsageError if a change replaces a value that distinguishes the runs of the sweep."""
    for path in map(_path, changes):
        for swept in values_of(job) or {}:
            if _is_within(path, swept) or _is_within(swept, path):
                raise UsageError(
                    f"--set {path}: the runs of this sweep differ in {swept}: "
                    "leave it out, or start a new sweep"
                )


def _path(change: str) -> str:
    """Returns the path of the field that --set changes, such as `spec.stop.seconds`. Raises UsageError."""
    try:
        return dotted(parse_path(change.partition("=")[0], f"--set {change}"))
    except ManifestError as error:
        raise UsageError(*error.problems) from None


def _is_within(path: str, whole: str) -> bool:
    return f"{path}.".startswith(f"{whole}.")
