"""Implements `rltrain run --sweep`: prepares the folder, runs all jobs, and compares them."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path

from rltraining import run as single
from rltraining import workdir
from rltraining.compare.command import notes
from rltraining.compare.estimates import estimates
from rltraining.compare.picture import draw
from rltraining.compare.result import of_folder
from rltraining.compare.row import Row, rows
from rltraining.compare.table import as_json, tables
from rltraining.errors import Exit, UsageError
from rltraining.plain import print_line
from rltraining.summary import shown
from rltraining.sweep import folder as sweep_folder
from rltraining.sweep import stop_rules
from rltraining.sweep.display import choose
from rltraining.sweep.execute import Execution
from rltraining.sweep.plan import SweepPlan, plan
from rltraining.sweep.snapshot import OVER
from rltraining.units import plural
from rltraining.whole_file import write_whole


def run(options: single.RunOptions) -> int:
    """Runs or resumes a sweep. Returns the exit code. Raises UsageError before anything is
    started."""
    # Plan a new sweep, or find the folder to resume.
    planned: SweepPlan | None = None
    if options.resume:
        folder = _resumed(options)
    else:
        planned = _planned(options)
        now = datetime.now().astimezone()
        folder = options.workdir or workdir.create_default(f"{planned.name}-sweep", now)
        sweep_folder.check(folder, options.mode, planned)
    # Lock the folder, write a new sweep or other stop rules into it, and run it.
    with workdir.locked(folder):
        if planned is not None:
            sweep_folder.check(folder, options.mode, planned)
            with workdir.written(folder):
                sweep_folder.clear(folder)
                sweep_folder.write(folder, planned)
        elif options.changes:
            stop_rules.change(folder, options.changes)
        return _execute(folder, options)


def _planned(options: single.RunOptions) -> SweepPlan:
    if options.file is None:
        raise UsageError("FILE is missing: name the manifest to sweep")
    if workdir.holds_run(Path(options.file)) or workdir.holds_sweep(Path(options.file)):
        raise UsageError(f"{options.file}: is the folder of a run or a sweep: name the manifest to sweep")
    planned = plan(options.file, options.changes, options.sweep)
    for planned_run in planned.runs:
        single.check_runs_here(planned_run.file)
    return planned


def _resumed(options: single.RunOptions) -> Path:
    folder = single.resumed_folder(options)
    if options.sweep or folder is None or not workdir.holds_sweep(folder):
        raise UsageError(
            "--resume: a resumed sweep uses its original jobs: leave out --sweep and --seeds: "
            "rltrain run FOLDER --resume"
        )
    stop_rules.check(options.changes)
    if options.workdir is not None and options.file is not None:
        raise UsageError("FILE: a resumed sweep uses its original jobs: leave it out")
    return folder


def _execute(folder: Path, options: single.RunOptions) -> int:
    # Run all jobs that are not over.
    with closing(choose(sys.stdout, plain=options.plain)) as display:
        execution = Execution(folder, display)
        number = len(execution.snapshot.rows)
        doing = "resuming" if options.resume else "running"
        at_once = f", {options.parallel} in parallel" if options.parallel > 1 else ""
        print_line(f"{doing} {shown(folder)}: {plural(number, 'run')}{at_once}", sys.stdout)
        asyncio.run(execution.run(options.parallel, options.nice))
    # Print the comparison, and how to resume.
    snapshot = execution.snapshot
    over = all(row.phase in OVER for row in snapshot.rows)
    compared = rows(of_folder(folder)) if any(row.steps for row in snapshot.rows) else ()
    if compared:
        print_line(f"\n{tables(compared)}", sys.stdout)
        for note in notes(compared):
            print_line(note, sys.stderr)
    if execution.signal is not None and not over:
        again = f"rltrain run {shlex.quote(shown(folder))} --resume"
        print_line(f"\nStopped: {snapshot.counts}. Continue:  {again}", sys.stdout)
    # Draw the curves, and store the comparison.
    for path, last in execution.undrawn:
        single.draw(last, path)
    if compared:
        keep(folder, compared)
    if execution.signal is not None and not over:
        return 128 + execution.signal
    return Exit.FAILED if any(row.phase == "Failed" for row in snapshot.rows) else Exit.OK


def keep(folder: Path, compared: Sequence[Row]) -> None:
    """Stores the comparison in the sweep's folder. A full disk does not invalidate the runs."""
    figures, drawing = (folder / name for name in sweep_folder.COMPARISON)
    try:
        write_whole(figures, as_json(compared, estimates(compared)))
        drawn = draw(compared, drawing)
    except OSError as error:
        print_line(f"the comparison could not be written: {error.strerror}", sys.stderr)
        return
    kept = [figures, drawing] if drawn else [figures]
    print_line(f"\n{' and '.join(map(shown, kept))}", sys.stdout)
