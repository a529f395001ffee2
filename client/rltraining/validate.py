"""Implements `rltrain validate`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import yaml
from rltraining_api.job import RLTrainingJob
from rltraining_api.manifest import ManifestError, Manifests, load_manifests
from rltraining_api.names import KIND
from rltraining_api.policy_lag import without_effect

from rltraining.environment_check import check_environment
from rltraining.errors import UsageError
from rltraining.jobfile import manifest, source, source_of
from rltraining.printable import say

SPACES = "note: whether an algorithm fits the environment's spaces is checked by rltrain explain, and when a run starts"


def validate(files: Sequence[str], overrides: Sequence[str] = (), *, print_jobs: bool) -> None:
    """Checks all files, with the overrides applied to each job, and prints the result of each.
    Raises UsageError with all problems of all files.

    A note on standard error names the checks that need the environment's spaces.

    With `print_jobs` the jobs go to standard output and all other text to standard error, so that
    they can be piped.
    """
    problems: list[str] = []
    checked: list[tuple[str, Manifests, list[str]]] = []
    for file in files:
        # Check the manifest.
        try:
            origin = source(file)
            found = load_manifests(origin, overrides)
        except (ManifestError, UsageError) as error:
            problems += error.problems
            continue
        # Look up the environments.
        findings = [check_environment(job.spec, _code_folder(job, origin)) for job in found.jobs]
        errors = _distinct(finding.error for finding in findings)
        problems += [f"{file}: {error}" for error in errors]
        if not errors:
            noticed = (*(finding.warning for finding in findings), *map(without_effect, found.jobs))
            checked.append((file, found, _distinct(noticed)))
    # Report.
    if not problems and not any(found.jobs for _, found, _ in checked):
        problems = [f"{file}: holds no {KIND}: nothing was checked" for file in files]
    for file, found, warnings in checked:
        for line in _report(file, found, warnings):
            say(line, err=print_jobs)
        if print_jobs and found.jobs:
            say(yaml.safe_dump_all(map(manifest, found.jobs), sort_keys=False, explicit_start=True), nl=False)
    if problems:
        raise UsageError(*problems)
    say(SPACES, err=True)


def _code_folder(job: RLTrainingJob, origin: Path | str) -> Path | None:
    """Returns the folder of the manifest, which may contain user modules. None for standard input."""
    path = source_of(job) or (origin if isinstance(origin, Path) else None)
    return None if path is None else Path(path).parent


def _distinct(sentences: Iterable[str | None]) -> list[str]:
    return [*dict.fromkeys(sentence for sentence in sentences if sentence)]


def _report(file: str, found: Manifests, warnings: Iterable[str]) -> list[str]:
    jobs = [
        f"{job.metadata.name} ({job.spec.algorithm.title} on {job.spec.environment.id})" for job in found.jobs
    ]
    return [
        *([f"ok: {file}: {', '.join(jobs)}"] if jobs else []),
        *(f"note: {file}: {n}" for n in found.notes),
        *(f"warning: {file}: {warning}" for warning in warnings),
    ]
