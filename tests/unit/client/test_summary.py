from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from signal import SIGINT, SIGTERM
from typing import Any

import pytest
from rltraining import built_in
from rltraining.jobfile import SOURCE_ANNOTATION
from rltraining.run import warn_of_old_status
from rltraining.snapshot import Snapshot
from rltraining.summary import failure, results, summary
from rltraining_api.curve import CurvePoint
from rltraining_api.evaluation import EvaluationResult, EvaluationStatus
from rltraining_api.job import Metadata
from rltraining_api.status import CheckpointStatus, ReplayStatus
from snapshots import PROGRESS, condition, snapshot


def point(steps: int, mean_return: float) -> CurvePoint:
    return CurvePoint(environment_steps=steps, seconds=steps, mean_return=mean_return)


def text_of(last: Snapshot, folder: Path, **again: object) -> str:
    return summary(last, folder, has_curve=False, **again)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "runs" / "x"
    (path / "policy").mkdir(parents=True)
    (path / "policy" / "policy.json").touch()
    return path


def test_a_success_says_what_came_out_and_what_to_do_with_it(folder: Path) -> None:
    last = snapshot(
        "Succeeded",
        message="stop.meanReturn is met",
        progress=PROGRESS | {"best_return": 490.04},
        curve=(point(1, 490.04), point(2, 480.0)),
        elapsed=61,
    )
    assert summary(last, folder, has_curve=True) == (
        """
Succeeded: cartpole: impala on CartPole-v1
  why        stop.meanReturn is met
  time       01:01
  steps      412,160 used for learning, 251k/s at the end
  return     213.4 last, 490.0 best (mean of training episodes)
  policy     runs/x/policy
  curve      runs/x/learning_curve.png
  status     runs/x/status.json
  logs       runs/x/logs
  everything runs/x

Evaluate:     rltrain evaluate runs/x/policy
Look closer:  tensorboard --logdir runs/x"""
    )


def test_a_replay_memory_is_told_of(folder: Path) -> None:
    def told(replay: ReplayStatus | None) -> list[str]:
        text = text_of(snapshot("Succeeded", replay=replay), folder)
        return [line for line in text.splitlines() if "replay" in line]

    applied = {"replay_ratio": 0.8, "priorities_applied": 80_000, "priorities_stale": 12}
    assert told(ReplayStatus(shards=2, size=90_000, **applied)) == [
        "  replay     90,000 in 2 shards, drawn 0.8 times each; 80,000 priorities applied, 12 stale"
    ]
    assert told(ReplayStatus(shards=1, size=5)) == ["  replay     5 in 1 shard"]
    assert told(None) == []


def test_a_warning_in_force_at_the_end_is_repeated(folder: Path) -> None:
    last = snapshot("Succeeded", warnings=("LastPolicyNotEvaluated: the last policy was not evaluated",))
    assert "\n  warning    LastPolicyNotEvaluated: the last policy was not evaluated\n" in text_of(
        last, folder
    )


def test_a_stopped_run_says_who_stopped_it_what_was_kept_and_how_to_go_on(folder: Path) -> None:
    for name in ("step-000000409000", "step-000000415000-1", ".step-000000500000"):
        (folder / "checkpoints" / name).mkdir(parents=True)
    message = "Suspended. Set spec.runPolicy.suspend to false to resume."
    last = snapshot("Suspended", message=message, progress=PROGRESS, signal=SIGINT)
    text = text_of(last, folder)
    assert text.startswith("\nStopped by Ctrl-C: cartpole: impala on CartPole-v1\n")
    assert "  steps      415,000 used for learning, 251k/s at the end\n" in text, "newer than the last report"
    assert "  checkpoint written at step 415,000\n" in text
    assert text.endswith(
        "\n\nEvaluate:  rltrain evaluate runs/x/policy\nContinue:  rltrain run runs/x --resume"
    )
    assert "uspend" not in text
    assert "curve" not in text
    shutil.rmtree(folder / "policy")
    assert text_of(last, folder).endswith("\n\nContinue:  rltrain run runs/x --resume")
    shutil.rmtree(folder / "checkpoints")
    text = text_of(snapshot("Suspended", signal=SIGTERM), folder)
    assert text.startswith("\nStopped by SIGTERM: ")
    assert "  checkpoint" not in text
    assert text.endswith("\n\nStart again (no checkpoint was written yet):  rltrain run runs/x --resume")


FULL = "the checkpoint of step 412160 could not be written to file:///x: the disk is full"


BEHIND = "the newest is of step {}: --resume continues from there"


@pytest.mark.parametrize(
    ("newest", "known", "failing", "rows"),
    [
        (415_000, 400_000, True, ["written at step 415,000"]),
        (400_000, 400_000, True, [BEHIND.format("400,000"), FULL]),
        (412_160, 412_160, True, [BEHIND.format("412,160")]),
        (400_000, None, False, [BEHIND.format("400,000")]),
        (None, None, True, [f"none: {FULL}"]),
    ],
    ids=["recovered at the end", "failing", "failing now", "behind", "none"],
)
def test_a_stopped_run_says_from_where_it_can_go_on(
    folder: Path, newest: int | None, known: int | None, failing: bool, rows: list[str]
) -> None:
    if newest is not None:
        (folder / "checkpoints" / f"step-{newest}").mkdir(parents=True)
    status: dict[str, Any] = {}
    if known is not None:
        status["checkpoint"] = CheckpointStatus(uri="file:///x", step=known, time=datetime.now(UTC))
    if failing:
        status["conditions"] = (condition("CheckpointHealthy", f"{FULL}; training continues", "False"),)
    last = snapshot("Suspended", progress=PROGRESS, signal=SIGINT, **status)
    lines = text_of(last, folder).splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith("  checkpoint"))
    assert lines[begin].startswith("  checkpoint ")
    assert [line[13:] for line in lines[begin : begin + len(rows)]] == rows


def test_a_policy_is_offered_only_where_there_is_one(folder: Path) -> None:
    (folder / "policy" / "policy.json").unlink()
    without = text_of(snapshot("Succeeded"), folder)
    assert without.endswith("\n\nLook closer:  tensorboard --logdir runs/x")
    elsewhere = snapshot("Succeeded", policy_uri="file:///kept/policy")
    assert "Evaluate:     rltrain evaluate file:///kept/policy\n" in text_of(elsewhere, folder)


def test_of_user_code_the_advice_has_the_flag_with_which_it_runs(folder: Path) -> None:
    last = snapshot("Succeeded")
    own = last.job.spec.environment.model_copy(update={"id": "maze_env:Maze-v0"})
    job = last.job.model_copy(update={"spec": last.job.spec.model_copy(update={"environment": own})})
    text = text_of(replace(last, job=job), folder)
    assert "Evaluate:     rltrain evaluate runs/x/policy --trust-code\n" in text


def test_after_a_failure_without_a_checkpoint_one_begins_again(folder: Path) -> None:
    assert text_of(snapshot("Failed"), folder).endswith(
        "\n\nTry again after fixing the error:  rltrain run FILE"
    )
    again = {"changes": ("seed=7", "environment.id=maze: v0"), "named": True}
    assert text_of(snapshot("Failed"), folder, **again).endswith(
        "  rltrain run FILE --workdir runs/x --overwrite --set seed=7 --set 'environment.id=maze: v0'"
    )


@pytest.mark.parametrize("name", ["cartpole-impala", "zoo/hopper-ppo"])
def test_after_a_failure_of_an_example_its_name_is_in_the_command(folder: Path, name: str) -> None:
    last = snapshot("Failed")
    source = {SOURCE_ANNOTATION: str((built_in.FOLDER / f"{name}.yaml").resolve())}
    origin = Metadata(name="cartpole", annotations=source)
    last = replace(last, job=last.job.model_copy(update={"metadata": origin}))
    assert text_of(last, folder).endswith(f"  rltrain run {name}")


def test_after_a_failure_before_the_first_update_one_begins_again(folder: Path) -> None:
    (folder / "checkpoints" / "step-000000000000").mkdir(parents=True)
    empty = CheckpointStatus(uri="file:///x", step=0, time=datetime.now(UTC))
    text = text_of(snapshot("Failed", checkpoint=empty), folder)
    assert text.endswith("\n\nTry again after fixing the error:  rltrain run FILE")
    assert "--resume" not in text


def test_after_a_failure_of_a_fork_it_begins_again_with_the_manifest_of_the_other_run(folder: Path) -> None:
    text = text_of(snapshot("Failed"), folder, file="my runs/first/job.yaml")
    assert text.endswith("Try again after fixing the error:  rltrain run 'my runs/first/job.yaml'")


def test_after_a_failure_with_a_checkpoint_one_goes_on(folder: Path) -> None:
    (folder / "checkpoints" / "step-5").mkdir(parents=True)
    last = snapshot("Failed")
    source = {SOURCE_ANNOTATION: str(folder.parents[1] / "my job.yaml")}
    origin = Metadata(name="cartpole", annotations=source)
    last = replace(last, job=last.job.model_copy(update={"metadata": origin}))
    assert text_of(last, folder).endswith(
        "\n\nAfter fixing the error, continue from the newest checkpoint:  rltrain run runs/x --resume\n"
        "(reads runs/x/job.yaml; "
        "to use an edited manifest: rltrain run 'my job.yaml' --workdir runs/x --resume)"
    )
    again = text_of(last, folder, changes=("seed=7",))
    assert again.endswith("rltrain run 'my job.yaml' --workdir runs/x --resume --set seed=7)")


@pytest.mark.parametrize(
    ("phase", "restarts", "failures", "lines"),
    [
        ("Failed", 1, 1, ["failures   1"]),
        ("Failed", 3, 1, ["restarts   3 (1 counted as failures)"]),
        ("Succeeded", 1, 1, ["restarts   1 (1 counted as failures)"]),
        ("Failed", 0, 0, []),
    ],
)
def test_what_was_not_restarted_is_not_called_a_restart(
    folder: Path, phase: str, restarts: int, failures: int, lines: list[str]
) -> None:
    text = text_of(snapshot(phase, restarts=restarts, failures=failures), folder)
    told = [line.strip() for line in text.splitlines() if "restarts" in line or "failures" in line]
    assert told == lines


@pytest.mark.parametrize(
    ("kept", "warning"),
    [
        ("Succeeded", ""),
        ("Running", "warning: runs/x/status.json could not be written, and is from an earlier time\n"),
        (None, "warning: runs/x/status.json could not be written\n"),
    ],
)
def test_a_status_that_lags_behind_what_was_said_is_warned_of(
    folder: Path, capsys: pytest.CaptureFixture[str], kept: str | None, warning: str
) -> None:
    if kept is not None:
        job = snapshot(kept).job.model_dump_json(by_alias=True, exclude_none=True)
        (folder / "status.json").write_text(job)
    warn_of_old_status(snapshot("Succeeded"), folder)
    assert capsys.readouterr().err == warning


def test_a_failure_is_told_once_and_not_again_in_the_summary(folder: Path) -> None:
    message = "sampler-0: it raised\nTraceback …\nValueError: no exit"
    last = snapshot("Failed", message="sampler-0: it raised", conditions=(condition("Failed", message),))
    assert failure(last.status) == message
    text = text_of(last, folder)
    assert "it raised" not in text
    assert "Traceback" not in text


def test_the_best_return_is_not_one_of_few_episodes() -> None:
    """The status has the best mean over the full number of episodes. Points of the curve may have fewer."""
    last = snapshot("Succeeded", progress=PROGRESS, curve=(point(1, 490.0),))
    assert dict(results(last))["return"] == "213.4 last (mean of training episodes)"


def test_the_summary_shows_the_best_policy_and_evaluations(folder: Path) -> None:
    (folder / "policy" / "best").mkdir()
    last = EvaluationResult(environment_steps=400_000, mean_return=480.0, episodes=20)
    best = EvaluationResult(environment_steps=250_000, mean_return=495.0, episodes=20)
    ended = snapshot("Succeeded", evaluation=EvaluationStatus(last=last, best=best))
    told = "  evaluation 480.0 last, 495.0 best, at step 250,000 (mean of 20 episodes with the most likely actions)"
    assert told in text_of(ended, folder).splitlines()
    assert "policy/best" not in text_of(ended, folder), "it is empty"
    (folder / "policy" / "best" / "policy.json").touch()
    assert "  best       runs/x/policy/best" in text_of(ended, folder).splitlines()
    assert "evaluation" not in text_of(snapshot("Succeeded", evaluation=EvaluationStatus()), folder)
