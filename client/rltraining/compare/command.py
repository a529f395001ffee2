"""Implements `rltrain compare`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rltraining import workdir
from rltraining.compare import picture
from rltraining.compare.estimates import SEEDS_MIN, can_estimate, estimates, pair_counts
from rltraining.compare.result import Result, of_folder, of_job
from rltraining.compare.row import Row, rows
from rltraining.compare.table import as_csv, as_json, tables
from rltraining.errors import ClientError, UsageError
from rltraining.local import REMEDY, require_local
from rltraining.printable import say
from rltraining.summary import shown

if TYPE_CHECKING:
    from rltraining.sdk.client import RLTrainingClient


def compare(
    names: Sequence[str],
    client: Callable[[], RLTrainingClient],
    output: Path | None,
    *,
    in_json: bool,
    in_csv: bool,
) -> None:
    """Prints the table, and draws a picture if requested. `names`: folders of runs and sweeps, and names
    of sweeps in a cluster, for which `client` is called."""
    if in_json and in_csv:
        raise UsageError("--json and --csv exclude each other: leave one out")
    if output is not None:
        require_local("--output")
        picture.check_format(output)
    found = [result for name in dict.fromkeys(names) for result in _results(name, client)]
    compared = rows(found)
    if in_json or in_csv:
        say((as_json if in_json else as_csv)(compared, estimates(compared)), nl=False)
    else:
        say(tables(compared))
    for note in notes(compared):
        say(note, err=True)
    if output is None:
        return
    try:
        drawn = picture.draw(compared, output)
    except OSError as error:
        raise UsageError(f"--output {output}: cannot be written: {error.strerror}") from None
    say(shown(output) if drawn else "no run has a return yet: nothing was drawn", err=True)


def notes(compared: Sequence[Row]) -> Iterator[str]:
    """Yields what weakens the comparison: different environments, too few seeds, a missing package."""
    environments = dict.fromkeys(run.title.partition(" on ")[2] for row in compared for run in row.runs)
    if len(environments) > 1:
        yield f"returns of different environments cannot be compared: {', '.join(environments)}"
    seeds = [*(len(row.counted) for row in compared), *pair_counts(compared)]
    if max(seeds, default=0) < 2:
        return
    if not can_estimate():
        yield f"for interquartile means and confidence intervals: {REMEDY}"
    elif min(count for count in seeds if count > 1) < SEEDS_MIN:
        yield (
            f"fewer than {SEEDS_MIN} seeds: the intervals are too narrow, and differences may be chance "
            f"(--seeds {SEEDS_MIN})"
        )


def _results(name: str, client: Callable[[], RLTrainingClient]) -> list[Result]:
    folder, is_path = Path(name), "/" in name or "." in name
    exists = folder.exists()
    if exists and (is_path or workdir.holds_run(folder) or workdir.holds_sweep(folder)):
        return of_folder(folder)
    if is_path:
        raise UsageError(f"{name}: there is no such folder")
    neither = f"{name}: {'holds neither a run nor a sweep' if exists else 'there is no such folder'}"
    from rltraining.cluster.sweep import selector

    try:
        there = client()
    except ClientError as error:
        raise UsageError(f"{neither}; as the name of a sweep in a cluster: {error}") from None
    jobs = there.list(selector(name))
    if not jobs:
        raise UsageError(f"{neither}, and in namespace {there.namespace} there is no sweep of this name")
    return [of_job(job, name, job.metadata.name) for job in jobs]
