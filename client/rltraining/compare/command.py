"""Implements `rltrain compare`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rltraining import workdir
from rltraining.compare import picture
from rltraining.compare.result import Result, of_folder, of_job
from rltraining.compare.row import Row, rows
from rltraining.compare.table import as_csv, as_json, table
from rltraining.errors import ClientError, UsageError
from rltraining.local import require_local
from rltraining.printable import say
from rltraining.summary import shown

if TYPE_CHECKING:
    from rltraining.sdk.client import RLTrainingClient


@dataclass(frozen=True)
class Options:
    """The options of the command line."""

    names: tuple[str, ...]
    """Folders of runs and sweeps, and names of sweeps in a cluster."""
    as_json: bool
    as_csv: bool
    output: Path | None


def compare(options: Options, client: Callable[[], RLTrainingClient]) -> None:
    """Prints the table, and draws a picture if requested. `client` is called if a name is not a
    folder."""
    if options.as_json and options.as_csv:
        raise UsageError("--json and --csv exclude each other: leave one out")
    if options.output is not None:
        require_local("--output")
        picture.check_format(options.output)
    found = [result for name in dict.fromkeys(options.names) for result in _results(name, client)]
    compared = rows(found)
    say(text(compared, options), nl=False)
    if options.output is None:
        return
    try:
        drawn = picture.draw(compared, options.output)
    except OSError as error:
        raise UsageError(f"--output {options.output}: cannot be written: {error.strerror}") from None
    say(shown(options.output) if drawn else "no run has a return yet: nothing was drawn", err=True)


def text(compared: Sequence[Row], options: Options) -> str:
    """Formats the comparison in the requested format."""
    if options.as_json:
        return as_json(compared)
    return as_csv(compared) if options.as_csv else f"{table(compared)}\n"


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
