"""Manages the folder of a sweep: `sweep.json`, and a folder for each run, with the layout of any
run."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from rltraining_api.files import read_regular

from rltraining import workdir
from rltraining.errors import UsageError
from rltraining.sweep.grid import SEED
from rltraining.sweep.plan import SweepPlan, values_of
from rltraining.whole_file import write_whole
from rltraining.workdir import JOB_FILE, STATUS_FILE, SWEEP_FILE, Mode

COMPARISON = ("comparison.json", "comparison.png")
RUNTIME_LOG = "runtime.log"
SWEEP_BYTES_MAX = 16 << 20


def run_names(folder: Path) -> list[str]:
    """Returns the names of a sweep's runs, in order. Raises UsageError if they cannot be read."""
    try:
        runs = json.loads(read_regular(folder / SWEEP_FILE, SWEEP_BYTES_MAX))["runs"]
        names = [str(run["name"]) for run in runs]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        names = []
    if not names:
        raise UsageError(
            f"{folder / SWEEP_FILE}: has no list of runs: name another folder, or delete this one"
        )
    if any(Path(name).name != name or name in ("", "..") for name in names):
        raise UsageError(f"{folder / SWEEP_FILE}: a run's name must be that of a folder beside it")
    return names


def check(folder: Path, mode: Mode, plan: SweepPlan) -> None:
    """Raises UsageError if a new sweep cannot be written there."""
    workdir.check_is_folder(folder)
    if workdir.holds_run(folder):
        raise UsageError(f"--workdir {folder}: holds a run: name another folder")
    if workdir.holds_sweep(folder):
        if mode == "new":
            raise UsageError(
                f"--workdir {folder}: holds a sweep already: continue it with --resume, replace it with --overwrite, "
                "or name another folder"
            )
        return
    for run in plan.runs:
        if (folder / run.name / STATUS_FILE).exists():
            raise UsageError(f"--workdir {folder}: holds the run {run.name} already: name another folder")


def write(folder: Path, plan: SweepPlan) -> None:
    """Writes a folder with its manifest for each run, then `sweep.json`, which completes the sweep.
    Raises OSError."""
    for run in plan.runs:
        (folder / run.name).mkdir(parents=True, exist_ok=True)
        run.file.save(folder / run.name / JOB_FILE)
    runs = [
        {
            "name": run.name,
            "values": {**(values_of(run.file.job) or {}), SEED: run.file.job.spec.seed},
        }
        for run in plan.runs
    ]
    text = json.dumps({"name": plan.name, "runs": runs}, indent=1)
    write_whole(folder / SWEEP_FILE, f"{text}\n")


def clear(folder: Path) -> None:
    """Deletes the files of an earlier sweep. Keeps other files. Raises OSError."""
    if not workdir.holds_sweep(folder):
        return
    for name in run_names(folder):
        with workdir.locked(folder / name):
            workdir.clear(folder / name)
        (folder / name / workdir.LOCK_FILE).unlink(missing_ok=True)
        with suppress(OSError):  # it contains a file of the user
            (folder / name).rmdir()
    workdir.remove(folder / name for name in (*COMPARISON, RUNTIME_LOG, SWEEP_FILE))
