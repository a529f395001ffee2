"""Implements `rltrain validate`."""

from __future__ import annotations

from collections.abc import Sequence

import yaml
from rltraining_api.manifest import ManifestError, Manifests, load_manifests
from rltraining_api.names import KIND

from rltraining.errors import UsageError
from rltraining.jobfile import manifest, source
from rltraining.printable import say


def validate(files: Sequence[str], *, print_jobs: bool) -> None:
    """Checks all files and prints the result of each. Raises UsageError with all problems of all
    files.

    With `print_jobs` the jobs go to standard output and all other text to standard error, so that
    they can be piped.
    """
    problems: list[str] = []
    checked: list[tuple[str, Manifests]] = []
    for file in files:
        try:
            checked.append((file, load_manifests(source(file))))
        except ManifestError as error:
            problems += error.problems
    if not problems and not any(found.jobs for _, found in checked):
        problems = [f"{file}: holds no {KIND}: nothing was checked" for file in files]
    for file, found in checked:
        for line in _report(file, found):
            say(line, err=print_jobs)
        if print_jobs and found.jobs:
            say(yaml.safe_dump_all(map(manifest, found.jobs), sort_keys=False, explicit_start=True), nl=False)
    if problems:
        raise UsageError(*problems)


def _report(file: str, found: Manifests) -> list[str]:
    jobs = [
        f"{job.metadata.name} ({job.spec.algorithm.title} on {job.spec.environment.id})" for job in found.jobs
    ]
    return [
        *([f"ok: {file}: {', '.join(jobs)}"] if jobs else []),
        *(f"note: {file}: {n}" for n in found.notes),
    ]
