"""Formats the summary at the end of a run."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from rltraining_api.evaluation import EvaluationStatus
from rltraining_api.status import ReplayStatus, Status

from rltraining import built_in
from rltraining.curve import CURVE_FILE
from rltraining.jobfile import STDIN, source_of
from rltraining.snapshot import Snapshot
from rltraining.units import clock, count, plural, score, short
from rltraining.workdir import BEST_POLICY, JOB_FILE, holds_policy, newest_checkpoint

WIDTH = 11


def failure(status: Status) -> str:
    """Returns why a job failed: a sentence, and for user code the end of its traceback."""
    failed = (c for c in status.conditions if c.type == "Failed" and c.status == "True")
    return next((c.message for c in failed), "") or status.message or "the job failed"


def summary(
    snapshot: Snapshot,
    folder: Path,
    *,
    has_curve: bool,
    changes: Sequence[str] = (),
    named: bool = False,
    file: str | None = None,
) -> str:
    """Summarizes a run in a few lines: how it ended, its results, where they are, and the next
    commands, which repeat the `changes` of --set. `named`: whether the user named the folder. `file`: the
    manifest of the command, or None if the command resumes a folder."""
    step = newest_checkpoint(folder)
    rows = [*results(snapshot, step), *_places(folder, has_curve)]
    headline = f"Stopped by {snapshot.stopped_by}" if snapshot.stopped_by else snapshot.phase
    return "\n".join(
        [
            "",
            *block(f"{headline}: {snapshot.title}", rows),
            "",
            *_advice(snapshot, folder, step, changes, named, file),
        ]
    ).rstrip()


def block(headline: str, rows: Iterable[tuple[str, str]]) -> list[str]:
    """Returns a headline, followed by a line for each non-empty value."""
    return [headline, *(f"  {name:<{WIDTH}}{value}" for name, value in rows if value)]


def shown(path: Path) -> str:
    """Formats a path, relative to the current directory if that is shorter."""
    return min(str(path), os.path.relpath(path), key=len)


def _named(origin: str | None) -> str:
    """Returns the manifest as an argument of a command: the name of an example, or a path."""
    if origin is None:
        return "FILE"
    return shlex.quote(built_in.name_of(Path(origin)) or shown(Path(origin)))


def results(snapshot: Snapshot, checkpoint: int | None = None) -> list[tuple[str, str]]:
    """Returns the results as names and values. Empty values are not shown.

    `checkpoint`: the step of the newest checkpoint, which is newer than the learner's last report
    if the run was stopped.
    """
    status, progress = snapshot.status, snapshot.status.progress
    stopped_at = checkpoint if snapshot.stopped_by else None
    # The error of a failed job is printed in full before the summary.
    why = "" if snapshot.stopped_by or status.phase == "Failed" else status.message.split("\n")[0]
    # The best mean is over the full number of episodes, since a few could be good by chance.
    best = "" if progress.best_return is None else f", {score(progress.best_return)} best"
    returns = f"{score(progress.mean_return)} last{best} (mean of training episodes)"
    if progress.mean_return is None:
        returns = "unknown: no episode has ended" if progress.environment_steps else ""
    steps = f"{count(max(progress.environment_steps, stopped_at or 0))} used for learning"
    if progress.steps_per_second:
        steps += f", {short(progress.steps_per_second)}/s at the end"
    return [
        ("why", why),
        ("time", clock(snapshot.elapsed)),
        ("steps", steps),
        ("return", returns),
        ("evaluation", _evaluation(status.evaluation) if status.evaluation else ""),
        ("replay", _replay(status.replay) if status.replay else ""),
        _restarts(status),
        *(_kept(status, stopped_at) if snapshot.stopped_by else ()),
        *(("warning", warning) for warning in status.warnings),
    ]


def _kept(status: Status, checkpoint: int | None) -> list[tuple[str, str]]:
    """Returns the checkpoint from which a stopped run can resume, and the reason if progress was
    lost."""
    failing = (c.message for c in status.conditions if c.type == "CheckpointHealthy" and c.status == "False")
    why = next(failing, "").removesuffix("; training continues")
    if checkpoint is None:
        return [("checkpoint", f"none: {why}" if why else "")]
    is_old = status.checkpoint is not None and checkpoint <= status.checkpoint.step
    if checkpoint >= status.progress.environment_steps and not (why and is_old):
        return [("checkpoint", f"written at step {count(checkpoint)}")]
    newest = f"the newest is of step {count(checkpoint)}: --resume continues from there"
    return [("checkpoint", newest), ("", why)]


def _evaluation(evaluation: EvaluationStatus) -> str:
    """Describes the last and the best evaluation. Empty before the first one."""
    last, best = evaluation.last, evaluation.best
    if last is None:
        return ""
    text = f"{score(last.mean_return)} last"
    if best is not None:
        text += f", {score(best.mean_return)} best, at step {count(best.environment_steps)}"
    return f"{text} (mean of {plural(last.episodes, 'episode')} with the most likely actions)"


def _replay(replay: ReplayStatus) -> str:
    """Describes the use of the replay memory, with the updates of priorities if it is
    prioritized."""
    ratio = "" if replay.replay_ratio is None else f", drawn {short(replay.replay_ratio)} times each"
    priorities = replay.priorities_applied + replay.priorities_stale
    stale = f"; {count(replay.priorities_applied)} priorities applied, {count(replay.priorities_stale)} stale"
    return f"{count(replay.size)} in {plural(replay.shards, 'shard')}{ratio}{stale if priorities else ''}"


def _restarts(status: Status) -> tuple[str, str]:
    """Returns the number of restarts. For a failed job without other restarts, returns the number
    of failures, since the last one is counted but not restarted."""
    if status.phase == "Failed" and status.failures >= status.restarts:
        return "failures", count(status.failures) if status.failures else ""
    failures = f"{count(status.failures)} counted as failures"
    return "restarts", f"{count(status.restarts)} ({failures})" if status.restarts else ""


def _places(folder: Path, has_curve: bool) -> list[tuple[str, str]]:
    return [
        ("policy", shown(folder / "policy") if holds_policy(folder / "policy") else ""),
        ("best", shown(folder / BEST_POLICY) if holds_policy(folder / BEST_POLICY) else ""),
        ("curve", shown(folder / CURVE_FILE) if has_curve else ""),
        ("status", shown(folder / "status.json")),
        ("logs", shown(folder / "logs")),
        ("everything", shown(folder)),
    ]


def _advice(
    snapshot: Snapshot,
    folder: Path,
    checkpoint: int | None,
    changes: Sequence[str],
    named: bool,
    file: str | None,
) -> list[str]:
    here = shlex.quote(shown(folder))
    resume = f"rltrain run {here} --resume"
    evaluate = _evaluate(snapshot, folder)
    if snapshot.stopped_by:
        if checkpoint is None:
            return [f"Start again (no checkpoint was written yet):  {resume}"]
        return [*([f"Evaluate:  {evaluate}"] if evaluate else []), f"Continue:  {resume}"]
    if snapshot.status.phase == "Failed":
        # A fork has the manifest of another run, which is not the file from which that run was started.
        manifest = shlex.quote(file) if file not in (None, STDIN) else _named(source_of(snapshot.job))
        changes = "".join(f" --set {shlex.quote(change)}" for change in changes)
        known = snapshot.status.checkpoint.step if snapshot.status.checkpoint else 0
        # A checkpoint of step 0 has nothing to continue.
        if max(known, checkpoint or 0) == 0:
            into = f" --workdir {here} --overwrite" if named else ""
            return [f"Try again after fixing the error:  rltrain run {manifest}{into}{changes}"]
        edited = f"rltrain run {manifest} --workdir {here} --resume{changes}"
        return [
            f"After fixing the error, continue from the newest checkpoint:  {resume}",
            f"(reads {shown(folder / JOB_FILE)}; to use an edited manifest: {edited})",
        ]
    return [
        *([f"Evaluate:     {evaluate}"] if evaluate else []),
        f"Look closer:  tensorboard --logdir {here}",
    ]


def _evaluate(snapshot: Snapshot, folder: Path) -> str:
    """Returns the command that evaluates the run's policy. Empty without a policy."""
    policy = shown(folder / "policy") if holds_policy(folder / "policy") else snapshot.status.policy_uri
    spec = snapshot.job.spec
    own_code = any(":" in reference for reference in spec.environment.code_references)
    trust = " --trust-code" if own_code or spec.network.entry_point else ""
    return f"rltrain evaluate {shlex.quote(policy)}{trust}" if policy else ""
