"""Implements `rltrain rerun`: makes the recorded updates of a run again."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from rltraining_api.job import RLTrainingJob
from rltraining_trainer.errors import TrainerError
from rltraining_trainer.roles.rerun import Rerun
from rltraining_trainer.world.recorder import FOLDER

from rltraining import workdir
from rltraining.errors import ClientError, Exit, UsageError
from rltraining.jobfile import JobFile, load, load_from
from rltraining.printable import say
from rltraining.units import aligned, plural

ROWS = 10
"""Number of updates, evenly spaced, for which terms are printed."""


def rerun(folder: Path, first: int | None, last: int | None, overrides: Sequence[str], *, debug: bool) -> int:
    """Makes the updates again and prints what was found. Returns the exit code. Raises ClientError."""
    local = workdir.holds_run(folder)
    if not local and not (folder / FOLDER).is_dir():
        raise UsageError(f"{folder}: holds no run: name the folder of a run, such as runs/first")
    if first is not None and last is not None and last < first:
        raise UsageError(f"--to {last}: is before --from {first}")

    def changed(text: str) -> RLTrainingJob:
        return load_from(text, overrides).job

    # Make the updates.
    terms: list[tuple[int, Mapping[str, float]]] = []
    found = Rerun(
        folder,
        first,
        last,
        change=changed if overrides else None,
        debug=debug,
        on_terms=lambda update, some: terms.append((update, some)),
    )
    with tempfile.TemporaryDirectory() as code:
        if local:  # the folder of a run in a cluster has no manifest
            _find_user_code(load(str(folder / workdir.JOB_FILE)), Path(code))
        try:
            found.run()
        except TrainerError as error:
            raise ClientError(str(error)) from None

    # Print the terms of some updates, and how they ended.
    if not found.updates:
        raise UsageError(
            f"{folder}: no update is recorded in this range: leave out --from and --to to see which are"
        )
    _print_terms(terms)
    if found.items:
        twice = f"{len(found.used_twice):,} of them twice" if found.used_twice else "each once"
        say(f"\nused {plural(len(found.items), 'item')} of samplers, {twice}")
    if found.error is not None:
        say(f"\nupdate {found.updates[-1]:,} raised: {found.error}")
    say(f"\n{_result(found, overrides)}")
    differs = (
        found.differs_at is not None or bool(found.used_twice) or (not overrides and not found.is_same_error)
    )
    return Exit.FAILED if differs else Exit.OK


def _result(found: Rerun, overrides: Sequence[str]) -> str:
    updates = f"{plural(len(found.updates), 'update')} from {found.updates[0]:,} to {found.updates[-1]:,}"
    if overrides:
        return f"made {updates} again with {', '.join(overrides)}"
    if found.gaps:
        gaps = ", ".join(f"{gap:,}" for gap in found.gaps)
        say(f"the learner continued with a state that the recording before does not reach: at {gaps} updates")
    if found.differs_at is not None:
        return (
            f"made {updates} again: the state after update {found.differs_at:,} differs from the recorded one. Rerun with the "
            "image, the packages and the kind of processor of the run"
        )
    if not found.is_same_error:
        return f"made {updates} again. The run ended otherwise: {found.recorded_error or 'without an error'}"
    same = f"{plural(found.compared, 'compared state')} of the learner equal the recording"
    return f"made {updates} again: {same}" + (", and so does the error" if found.error else "")


def _print_terms(terms: Sequence[tuple[int, Mapping[str, float]]]) -> None:
    """Prints a table of some updates."""
    step = max(1, -(-len(terms) // ROWS))
    rows = [*terms[:-1:step], *terms[-1:]]
    if not rows:
        return
    names = list(rows[-1][1])
    lines = [["update", *names]]
    for update, some in rows:
        lines.append([f"{update:,}", *(f"{some.get(name, float('nan')):.4g}" for name in names)])
    say(aligned(lines))


def _find_user_code(job: JobFile, scratch: Path) -> None:
    """Makes user modules importable: those beside the manifest, and those of its ConfigMaps."""
    for config_map in job.config_maps:
        for name, text in (config_map.get("data") or {}).items():
            (scratch / name).write_text(text, encoding="utf-8")
    sys.path.append(str(scratch))
    if job.code_folder is not None:
        sys.path.append(str(job.code_folder))
