"""Manages the folder of a run: its location, whether it can be used, and which files in it belong
to the run."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

from rltraining_api.files import open_regular, read_regular
from rltraining_api.job import RLTrainingJob
from rltraining_api.manifest import ManifestError, read_job
from rltraining_operator.local.events import EVENTS_FILE

from rltraining.curve import CURVE_FILE
from rltraining.errors import UsageError
from rltraining.history import PROGRESS_FILE
from rltraining.jobfile import JOB_NAME, SAVED_HEADER

RUNS = Path("runs")
JOB_FILE = JOB_NAME
STATUS_FILE = "status.json"
SWEEP_FILE = "sweep.json"
REPORT_FILE = "report.html"
CHAOS_FILE = "chaos.json"
BEST_POLICY = "policy/best"
"""Folder of the policy with the best evaluation, below the folder of the last policy."""
LOCK_FILE = ".lock"
RUN_FILES = (
    *(STATUS_FILE, EVENTS_FILE, PROGRESS_FILE, CURVE_FILE, REPORT_FILE, CHAOS_FILE),
    "hashes.jsonl",
    *("checkpoints", "policy", "recording", "tensorboard", "logs", ".pods", ".evaluation", "wandb"),
    JOB_FILE,  # deleted last, because it identifies the folder of a run
)
"""The files of a run in its folder. No other file is ever deleted."""
STATUS_BYTES_MAX = 16 << 20

Mode = Literal["new", "resume", "overwrite"]


def holds_run(folder: Path) -> bool:
    """Returns whether the folder contains a run: its job.yaml was written by `JobFile.save`."""
    try:
        with open_regular(folder / JOB_FILE) as file:
            return file.read(len(SAVED_HEADER)) == SAVED_HEADER.encode()
    except OSError:
        return False


def holds_policy(folder: Path) -> bool:
    """Returns whether this folder itself contains a policy."""
    return (folder / "policy.json").is_file()


def holds_sweep(folder: Path) -> bool:
    """Returns whether the folder contains a sweep (see `sweep.folder`)."""
    return (folder / SWEEP_FILE).is_file()


def last_state(folder: Path) -> RLTrainingJob | None:
    """Returns the job of the folder's run with its last status, or None if it cannot be read."""
    try:
        return read_job(json.loads(read_regular(folder / STATUS_FILE, STATUS_BYTES_MAX)))
    except (OSError, ValueError, RecursionError, ManifestError):
        return None


def newest_checkpoint(folder: Path) -> int | None:
    """Returns the step of the newest checkpoint, or None. Names of incomplete checkpoints start
    with a dot."""
    names = [re.match(r"step-(\d+)", path.name) for path in (folder / "checkpoints").glob("*")]
    return max((int(name[1]) for name in names if name), default=None)


def default(job_name: str, now: datetime) -> Path:
    """Returns the default folder, such as `runs/cartpole-20261121-014300`."""
    return RUNS / f"{job_name}-{now:%Y%m%d-%H%M%S}"


def create_default(job_name: str, now: datetime) -> Path:
    """Creates the default folder. If another run has it, creates that of the next free second.

    Raises UsageError if the folder cannot be created.
    """
    with written(RUNS):
        RUNS.mkdir(exist_ok=True)
        while True:
            folder = default(job_name, now)
            try:
                folder.mkdir()
            except FileExistsError:
                now += timedelta(seconds=1)
            else:
                return folder


def newest(job_name: str | None) -> Path:
    """Returns the newest run in `runs/` of this job, or the newest run or sweep of any job.

    Raises UsageError if there is none.
    """
    digit = "[0-9]"  # digits of the time in `default`: `cart` must not match a run of `cart-large`
    pattern = f"{job_name or '*'}-{digit * 8}-{digit * 6}"
    runs = [folder for folder in RUNS.glob(pattern) if holds_run(folder) or holds_sweep(folder)]
    if not runs:
        raise UsageError(f"there is no run to resume in {RUNS}/: name its folder with --workdir")
    return max(runs, key=_started)


def _started(folder: Path) -> float:
    return (folder / (JOB_FILE if holds_run(folder) else SWEEP_FILE)).stat().st_mtime


def check_is_folder(folder: Path) -> None:
    """Raises UsageError if the path is not a folder."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"--workdir {folder}: is a file, a folder is needed")


def check_is_text(folder: Path, option: str = "--workdir ") -> None:
    """Raises UsageError if the path is not UTF-8, which reports of the folder's content require."""
    try:
        str(folder.absolute()).encode()
    except UnicodeEncodeError as error:
        path = error.object.encode(errors="replace").decode()
        raise UsageError(f"{option}{path}: its path is not UTF-8: name another") from None


def check(folder: Path, mode: Mode) -> None:
    """Raises UsageError if the folder cannot be used in this mode."""
    check_is_folder(folder)
    if holds_sweep(folder):
        raise UsageError(f"--workdir {folder}: holds a sweep: name another folder")
    if mode == "new" and holds_run(folder):
        raise UsageError(
            f"--workdir {folder}: holds a run already: continue it with --resume, replace it with --overwrite, "
            "or name another folder"
        )
    has_checkpoint = newest_checkpoint(folder) is not None
    if mode == "resume" and not holds_run(folder):
        if not has_checkpoint:
            raise UsageError(f"--workdir {folder}: holds no run to resume: leave out --resume to start one")
        if not (folder / JOB_FILE).exists():
            return  # the given manifest replaces it
        raise UsageError(
            f"--workdir {folder}: its {JOB_FILE} was not written by this run: move it away, and name the manifest: "
            f"rltrain run FILE --workdir {folder} --resume"
        )
    if (folder / JOB_FILE).exists() and not holds_run(folder):
        raise UsageError(
            f"--workdir {folder}: holds a {JOB_FILE} of yours, which a run would replace: name another"
        )
    if not holds_run(folder) and has_checkpoint:
        raise UsageError(
            f"--workdir {folder}: holds checkpoints of a run that has no {JOB_FILE}, and a new run would continue from them: "
            "add --resume to do that, or delete them, or name another folder"
        )


@contextmanager
def written(folder: Path) -> Iterator[None]:
    """Converts errors of writing into the folder before a run to UsageError."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"--workdir {folder}: cannot be written: {error.strerror}") from None


@contextmanager
def held(folder: Path, mode: Mode) -> Iterator[None]:
    """Creates and locks the folder, so that two commands never use the same one.

    Raises UsageError if the folder cannot be used in this mode.
    """
    check(folder, mode)
    with locked(folder):
        check(folder, mode)  # another command may have used the folder before the lock
        yield


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Creates the folder and locks it. Raises UsageError if another command holds the lock, or the
    folder cannot be used."""
    check_is_text(folder)
    with written(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"--workdir {folder}: another rltrain is running in it") from None
        yield
    finally:
        os.close(lock)


def is_held(folder: Path) -> bool:
    """Returns whether a command uses the folder now."""
    try:
        lock = os.open(folder / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def clear(folder: Path) -> None:
    """Deletes the files of an earlier run. Keeps all others."""
    if holds_run(folder):
        remove(folder / name for name in RUN_FILES)


def remove(paths: Iterable[Path]) -> None:
    """Deletes files and folders, if they exist."""
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
