"""Implements `rltrain run`: prepares the folder, trains, and prints a summary."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from rltraining_api.job import RLTrainingJob
from rltraining_api.names import CONTROLLER_NAME

from rltraining import curve, history, summary, workdir
from rltraining.commands import complain
from rltraining.display import choose
from rltraining.environment_check import check_module_here
from rltraining.errors import Exit, UsageError
from rltraining.jobfile import JobFile, load
from rltraining.log_file import logging_to
from rltraining.plain import print_line
from rltraining.session import Beside, train
from rltraining.snapshot import Snapshot
from rltraining.sweep.plan import Request
from rltraining.workdir import Mode


@dataclass(frozen=True)
class RunOptions:
    """The options of the command line."""

    file: str | None
    workdir: Path | None
    changes: tuple[str, ...]
    """`path=value`, as given to --set."""
    resume: bool
    overwrite: bool
    plain: bool
    sweep: Request = field(default_factory=Request)
    parallel: int = 1
    """Number of runs of a sweep that run in parallel."""
    nice: int = 0
    """How much lower the CPU priority of the processes is, 0 to 19."""
    beside: Beside | None = None
    """Is called beside the run, and cancelled at its end."""

    @property
    def mode(self) -> Mode:
        if self.resume and self.overwrite:
            raise UsageError("--resume and --overwrite exclude each other: leave one out")
        return "resume" if self.resume else "overwrite" if self.overwrite else "new"


def run(options: RunOptions) -> int:
    """Trains, or runs a sweep. Returns the exit code. Raises UsageError before anything is started
    or changed."""
    # Run a sweep if the options or the resumed folder describe one.
    mode = options.mode
    if options.sweep or _resumes_sweep(options):
        from rltraining.sweep import command

        return command.run(options)
    if options.parallel != 1:
        raise UsageError("--parallel: is for sweeps: add --sweep or --seeds")
    # Lock the folder, and save the manifest.
    folder, file = _prepare(options)
    with prepared(file, folder, mode), ExitStack() as logged:
        with workdir.written(folder):
            logged.enter_context(logging_to(folder / "logs" / "rltrain.log"))
        print_line(f"{'resuming' if options.resume else 'running'} {summary.shown(folder)}", sys.stdout)
        # Train, then print a summary and draw the curve.
        display = choose(sys.stdout, plain=options.plain)
        try:
            last = asyncio.run(train(file, folder, display, options.nice, options.beside))
        finally:
            display.close()
        return _finish(last, folder, options)


@contextmanager
def prepared(file: JobFile, folder: Path, mode: Mode) -> Iterator[None]:
    """Locks the folder of a run and writes the manifest into it. Raises UsageError if the folder cannot be
    used in this mode."""
    with workdir.held(folder, mode):
        if mode == "resume" and (before := workdir.last_state(folder)) is not None:
            _check_continues(before, file.job, folder)
        with workdir.written(folder):
            if mode == "overwrite":
                workdir.clear(folder)
            file.save(folder / workdir.JOB_FILE)
        yield


def _check_continues(before: RLTrainingJob, job: RLTrainingJob, folder: Path) -> None:
    """Raises UsageError if the run in the folder has another algorithm, which cannot load its
    checkpoints, or has met its stop rule already."""
    begun, wanted = before.spec.algorithm.name, job.spec.algorithm.name
    if begun != wanted:
        raise UsageError(
            f"--resume: {summary.shown(folder)} was started with {begun}, and {wanted} cannot use its checkpoints: "
            "choose another --workdir"
        )
    if before.status.phase == "Succeeded" and before.spec.stop == job.spec.stop:
        raise UsageError(
            f"this run has succeeded already ({before.status.message}); "
            f"to continue training, change the rule: --set stop.{met_rule(before) or 'environmentSteps'}=..."
        )


def _resumes_sweep(options: RunOptions) -> bool:
    folder = resumed_folder(options)
    return folder is not None and workdir.holds_sweep(folder)


def resumed_folder(options: RunOptions) -> Path | None:
    """Returns the folder to resume, as far as it can be determined without the manifest. Raises
    UsageError."""
    if not options.resume:
        return None
    if options.workdir is not None:
        return options.workdir
    if options.file is None:
        return workdir.newest(None)
    return Path(options.file) if Path(options.file).is_dir() else None


def _prepare(options: RunOptions) -> tuple[Path, JobFile]:
    """Returns the folder and the job. Raises UsageError."""
    # Distinguish the folder of a run from a manifest.
    folder, file = options.workdir, options.file
    if options.resume and folder is None and file is not None and Path(file).is_dir():
        folder, file = Path(file), None
    if file is not None and (workdir.holds_run(Path(file)) or workdir.holds_sweep(Path(file))):
        what = "run" if workdir.holds_run(Path(file)) else "sweep"
        raise UsageError(f"{file}: is the folder of a {what}: to continue this {what} add --resume")
    # Without a manifest, resume from the folder's own.
    if file is None:
        folder = folder or resumed_folder(options)
        if folder is None or not options.resume:
            raise UsageError("FILE is missing: name a manifest, or continue a run with --resume")
        workdir.check(folder, options.mode)
        if not (folder / workdir.JOB_FILE).exists():
            raise UsageError(
                f"--workdir {folder}: its {workdir.JOB_FILE} is gone: name the manifest: "
                f"rltrain run FILE --workdir {folder} --resume"
            )
        file = str(folder / workdir.JOB_FILE)
    # Check the job and choose a folder.
    loaded = load(file, options.changes)
    check_runs_here(loaded)
    name = loaded.job.metadata.name
    if folder is None:
        now = datetime.now().astimezone()
        folder = workdir.newest(name) if options.resume else workdir.create_default(name, now)
    return folder, loaded


def met_rule(job: RLTrainingJob) -> str | None:
    """Returns the rule below `spec.stop` that ended a job, or None. The status message begins with it."""
    rule = re.match(r"stop\.(\w+)", job.status.message or "")
    return rule[1] if rule else None


def check_runs_here(file: JobFile) -> None:
    """Checks that the job does not wait for another controller or object, which would block forever
    on this machine, and that its environment's module is here. Raises UsageError."""
    policy, code = file.job.spec.run_policy, file.job.spec.code
    if policy.suspend:
        raise UsageError(
            "spec.runPolicy.suspend: is true, so nothing would run: add --set runPolicy.suspend=false"
        )
    if policy.managed_by not in (None, CONTROLLER_NAME):
        raise UsageError(
            "spec.runPolicy.managedBy: names another controller: add --set runPolicy.managedBy=null"
        )
    names = [config_map["metadata"]["name"] for config_map in file.config_maps]
    if code is not None and code.config_map.name not in names:
        raise UsageError(
            f"spec.code.configMap.name: the ConfigMap {code.config_map.name} is not in the manifest's file: add it there"
        )
    check_module_here(file.job.spec, file.code_folder)


def _finish(last: Snapshot, folder: Path, options: RunOptions) -> int:
    """Prints the summary, then draws the curve, so that Ctrl-C is not delayed by drawing. Returns
    the exit code."""
    has_curve = bool(history.curve(history.read(folder)))
    failed = last.status.phase == "Failed"
    if failed:
        with suppress(OSError):
            complain(summary.failure(last.status).rstrip())
    named = options.resume or options.workdir is not None
    text = summary.summary(
        last, folder, has_curve=has_curve, changes=options.changes, named=named, file=_manifest(options)
    )
    print_line(text, sys.stdout)
    draw(last, folder)
    warn_of_old_status(last, folder)
    if last.stopped_by and last.signal is not None:
        return 128 + last.signal
    return Exit.FAILED if failed else Exit.OK


def _manifest(options: RunOptions) -> str | None:
    """Returns the manifest of the command, or None if the command names a folder to resume."""
    file = options.file
    return None if file is None or workdir.holds_run(Path(file)) else file


def warn_of_old_status(last: Snapshot, folder: Path) -> None:
    """Prints a warning if the stored status differs from the reported end."""
    kept = workdir.last_state(folder)
    if not last.stopped_by and (kept is None or kept.status.phase != last.status.phase):
        file = summary.shown(folder / workdir.STATUS_FILE)
        then = ", and is from an earlier time" if kept else ""
        print_line(f"warning: {file} could not be written{then}", sys.stderr)


def draw(last: Snapshot, folder: Path) -> None:
    """Draws the learning curve into the run's folder, if there is one."""
    if not (points := history.curve(history.read(folder))):
        return
    goal = last.job.spec.stop.mean_return
    try:
        curve.png(points, folder / curve.CURVE_FILE, title=last.title, goal=goal.at_least if goal else None)
    except OSError as error:  # a full disk does not invalidate the run
        print_line(f"the curve could not be written: {error.strerror}", sys.stderr)
