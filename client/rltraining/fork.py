"""Implements `rltrain fork`: a new run that begins at a checkpoint of another run."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from rltraining import workdir
from rltraining.errors import UsageError
from rltraining.jobfile import load
from rltraining.printable import say
from rltraining.run import RunOptions, run


def fork(
    folder: Path,
    at: int | None,
    workdir_: Path | None,
    changes: Sequence[str],
    *,
    overwrite: bool,
    plain: bool,
) -> int:
    """Trains from a checkpoint of the run in a folder. Returns the exit code. Raises UsageError."""
    if not workdir.holds_run(folder):
        raise UsageError(f"{folder}: holds no run: name the folder of a run, such as runs/first")
    if workdir_ is not None and workdir_.resolve() == folder.resolve():
        raise UsageError(f"--workdir {workdir_}: is the folder of the run to begin from: name another folder")
    file = folder / workdir.JOB_FILE
    if load(str(file)).job.spec.checkpoint.uri is not None:
        raise UsageError(
            f"{folder}: its checkpoints are at spec.checkpoint.uri: write a manifest with another name and "
            "checkpoint.resumeFrom, the URI of one of them"
        )
    checkpoint = newest_until(folder, at)
    say(f"beginning at {checkpoint}")
    place = f"checkpoint.resumeFrom={json.dumps(f'file://{checkpoint.resolve()}')}"
    options = RunOptions(
        str(file), workdir_, (place, *changes), resume=False, overwrite=overwrite, plain=plain
    )
    return run(options)


def newest_until(folder: Path, step: int | None) -> Path:
    """Returns the newest checkpoint with at most this number of environment steps. None: the newest.

    Raises UsageError if there is none.
    """
    found = [
        (int(match[1]), int(match[2] or 1), path)
        for path in (folder / "checkpoints").glob("step-*")
        if (match := re.fullmatch(r"step-(\d+)(?:-(\d+))?", path.name))
    ]
    if not found:
        raise UsageError(f"{folder}: has no checkpoint yet")
    fitting = [each for each in found if step is None or each[0] <= step]
    if not fitting:
        raise UsageError(
            f"--at {step}: the oldest checkpoint is at step {min(found)[0]}; a run keeps more with "
            "--set checkpoint.keep=100"
        )
    return max(fitting)[2]
