"""The folder of a run: which one, whether it may be used, and what in it belongs to the run."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Literal

from rltraining_api.files import open_regular, read_regular
from rltraining_api.job import RLTrainingJob
from rltraining_api.manifest import ManifestError, read_job
from rltraining_operator.local.events import EVENTS_FILE

from rltraining.curve import CURVE_FILE
from rltraining.errors import UsageError
from rltraining.history import PROGRESS_FILE
from rltraining.jobfile import SAVED_HEADER

RUNS = Path("runs")
JOB_FILE = "job.yaml"
STATUS_FILE = "status.json"
SWEEP_FILE = "sweep.json"
REPORT_FILE = "report.html"
BEST_POLICY = "policy/best"
"""Folder of the policy with the best evaluation, below the folder of the last policy."""
LOCK_FILE = ".lock"
OURS = (
    *(STATUS_FILE, EVENTS_FILE, PROGRESS_FILE, CURVE_FILE, REPORT_FILE),
    *("checkpoints", "policy", "tensorboard", "logs", ".pods", ".evaluation"),
    JOB_FILE,  # the last to be deleted: by it the rest is known to be a run's
)
"""What a run leaves in its folder. Nothing else is ever deleted."""
STATUS_BYTES_MAX = 16 << 20

Mode = Literal["new", "resume", "overwrite"]


def holds_run(folder: Path) -> bool:
    """Whether a run was started in this folder before: its job.yaml is one that `JobFile.save` wrote."""
    try:
        with open_regular(folder / JOB_FILE) as file:
            return file.read(len(SAVED_HEADER)) == SAVED_HEADER.encode()
    except OSError:
        return False


def holds_policy(folder: Path) -> bool:
    """Returns whether this folder itself contains a policy."""
    return (folder / "policy.json").is_file()


def holds_sweep(folder: Path) -> bool:
    """Whether the runs of a sweep lie in this folder (see `sweep.folder`)."""
    return (folder / SWEEP_FILE).is_file()


def last_state(folder: Path) -> RLTrainingJob | None:
    """The job of the folder's run, with the status it had last; None when that cannot be told."""
    try:
        return read_job(json.loads(read_regular(folder / STATUS_FILE, STATUS_BYTES_MAX)))
    except (OSError, ValueError, RecursionError, ManifestError):
        return None


def newest_checkpoint(folder: Path) -> int | None:
    """The step to go on from; None without a checkpoint. What the learner has not finished writing begins with a dot."""
    names = [re.match(r"step-(\d+)", path.name) for path in (folder / "checkpoints").glob("*")]
    return max((int(name[1]) for name in names if name), default=None)


def default(job_name: str, now: datetime) -> Path:
    """`runs/cartpole-20261121-014300`"""
    return RUNS / f"{job_name}-{now:%Y%m%d-%H%M%S}"


def newest(job_name: str | None) -> Path:
    """The run in `runs/` that was started last, of this job or of any, when the newest may be a sweep.

    Raises UsageError when there is none.
    """
    digit = "[0-9]"  # of the time in `default`: the job `cart` must not find a run of `cart-large`
    pattern = f"{job_name or '*'}-{digit * 8}-{digit * 6}"
    runs = [folder for folder in RUNS.glob(pattern) if holds_run(folder) or holds_sweep(folder)]
    if not runs:
        raise UsageError(f"there is no run to resume in {RUNS}/: name its folder with --workdir")
    return max(runs, key=_started)


def _started(folder: Path) -> float:
    return (folder / (JOB_FILE if holds_run(folder) else SWEEP_FILE)).stat().st_mtime


def check_is_folder(folder: Path) -> None:
    """Raises UsageError where something else is in its place."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"--workdir {folder}: is a file, a folder is needed")


def check_is_text(folder: Path, option: str = "--workdir ") -> None:
    """Raises UsageError where its path is no UTF-8, in which reports tell of what lies there."""
    try:
        str(folder.absolute()).encode()
    except UnicodeEncodeError as error:
        path = error.object.encode(errors="replace").decode()
        raise UsageError(f"{option}{path}: its path is not UTF-8: name another") from None


def check(folder: Path, mode: Mode) -> None:
    """Raises UsageError where the folder cannot be used in this way."""
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
            return  # the manifest that is named takes its place
        raise UsageError(
            f"--workdir {folder}: its {JOB_FILE} is not the one that the run wrote: move it away, and name the manifest: "
            f"rltrain run FILE --workdir {folder} --resume"
        )
    if (folder / JOB_FILE).exists() and not holds_run(folder):
        raise UsageError(
            f"--workdir {folder}: holds a {JOB_FILE} of yours, which a run would replace: name another"
        )
    if not holds_run(folder) and has_checkpoint:
        raise UsageError(
            f"--workdir {folder}: holds checkpoints of a run that has no {JOB_FILE}, and a new run would go on from them: "
            "add --resume if it should, else delete them, or name another folder"
        )


@contextmanager
def written(folder: Path) -> Iterator[None]:
    """Around what is written into the folder before a run. Raises UsageError where it cannot be."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"--workdir {folder}: cannot be written: {error.strerror}") from None


@contextmanager
def held(folder: Path, mode: Mode) -> Iterator[None]:
    """Make the folder and hold it, so that two commands never work in one.

    Raises UsageError where the folder cannot be used in this way.
    """
    check(folder, mode)
    with locked(folder):
        check(folder, mode)  # another may have used it between the first look and the lock
        yield


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make the folder, and keep other commands out. Raises UsageError where one is in it, or it cannot be used."""
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
    """Whether a command works in it now."""
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
    """Delete what an earlier run left; files that are not a run's stay."""
    if holds_run(folder):
        remove(folder / name for name in OURS)


def remove(paths: Iterable[Path]) -> None:
    """Delete files and folders; those that are not there are no trouble."""
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
