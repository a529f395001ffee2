"""`rltrain run`, from a manifest to a policy, and the other ways in which it can end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from rltrain_command import COMMAND, MANIFEST, SECONDS_MAX, rltrain, started

HIDING = ("queue", "random", "nt", "numpy")
"""Modules of Python and of dependencies whose names users may give to files beside the manifest."""
FOREVER = "stop.environmentSteps=1000000000"

MAZE = """
import gymnasium as gym

class Maze(gym.Env):
    observation_space, action_space = gym.spaces.Box(-1, 1, (3,)), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        raise ValueError("the maze has no exit")

gym.register("Maze-v0", entry_point=Maze)
"""


def status_of(workdir: Path) -> dict[str, Any]:
    status: dict[str, Any] = json.loads((workdir / "status.json").read_text())["status"]
    return status


def steps_of(workdir: Path) -> int:
    return int(status_of(workdir)["progress"]["environmentSteps"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "job.yaml").write_text(MANIFEST)
    return tmp_path


def test_a_run_that_succeeds_leaves_everything_and_exits_with_0(folder: Path) -> None:
    for module in HIDING:
        (folder / f"{module}.py").write_text("raise ImportError('the wrong one')")
    changes = ("environment.numEnvs=8", "sampler.replicas=2", "runPolicy.ttlSecondsAfterFinished=0")
    settings = [word for change in changes for word in ("--set", change)]
    ended = rltrain(folder, "run", "job.yaml", "--workdir", "run", "--seed", "7", *settings)
    assert (ended.code, ended.err) == (0, ""), ended
    run = folder / "run"
    assert (run / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    for name in (
        "logs/cartpole-learner-0.log",
        "logs/cartpole-sampler-1.log",
        "progress.jsonl",
        "policy/policy.json",
    ):
        assert (run / name).is_file()
    assert list((run / "checkpoints").iterdir())
    assert list((run / "tensorboard").iterdir())

    # The manifest is kept as it was run.
    spec = yaml.safe_load((run / "job.yaml").read_text())["spec"]
    assert (spec["seed"], spec["environment"]["numEnvs"], spec["sampler"]["replicas"]) == (7, 8, 2)

    # The status has the whole curve.
    status = status_of(run)
    assert status["phase"] == "Succeeded"
    first, *_, last = status["curve"]
    progress = status["progress"]
    assert first["environmentSteps"] < last["environmentSteps"]
    assert progress["environmentSteps"] == last["environmentSteps"] >= 10_000
    assert progress["meanReturn"] == last["meanReturn"]

    # Without a terminal, the command prints lines.
    assert "\x1b" not in ended.out
    lines = ended.out.splitlines()
    assert lines[0] == "running run"
    for words in (["Event", "PodsCreated: created cartpole-learner-0"], ["Running"], ["Event", "Completed"]):
        assert any(all(word in line for word in words) for line in lines), words
    assert "Succeeded: cartpole: impala on CartPole-v1" in lines
    assert "  curve      run/learning_curve.png" in lines
    assert "Evaluate:     rltrain evaluate run/policy" in lines

    # The run is rendered as a page.
    reported = rltrain(folder, "report", "run")
    assert reported.code == 0, reported
    page = (run / "report.html").read_text()
    for words in ("Mean return over steps", "Policy lag", "PodsCreated", "Complete: True", "data:video/mp4"):
        assert words in page, words


def test_user_code_of_a_config_map_and_beside_the_manifest_that_raises_fails_the_run_with_its_traceback(
    folder: Path,
) -> None:
    (folder / "maze.py").write_text(MAZE)
    hall = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "code"},
        "data": {"hall.py": "import maze"},
    }
    (folder / "job.yaml").write_text(
        f"{MANIFEST}  code: {{configMap: {{name: code}}}}\n---\n{yaml.safe_dump(hall)}"
    )
    ended = rltrain(folder, "run", "job.yaml", "--set", "environment.id=hall:Maze-v0", "--workdir", "run")
    assert ended.code == 1, ended
    assert "step raised ValueError: the maze has no exit" in ended.err.splitlines()[0]
    assert 'raise ValueError("the maze has no exit")' in ended.err
    assert "Failed: cartpole: impala on hall:Maze-v0" in ended.out
    assert status_of(folder / "run")["phase"] == "Failed"


def test_a_terminal_that_goes_away_stops_no_training(folder: Path) -> None:
    mine, its = os.openpty()
    command = subprocess.Popen(
        [COMMAND, "run", "job.yaml", "--workdir", "run", "--seeds", "2"],
        cwd=folder,
        stdout=its,
        stderr=its,
        env=os.environ | {"OMP_NUM_THREADS": "1", "TERM": "xterm"},
    )
    with command:
        try:
            os.close(its)
            shown = b""
            while b"Waiting" not in shown:  # the live view has started
                shown += os.read(mine, 65536)
            os.close(mine)
            assert command.wait(SECONDS_MAX) == 0
        finally:
            command.kill()
    assert (folder / "run" / "comparison.png").is_file()


def test_an_interrupted_run_goes_on_where_it_stopped_and_a_second_signal_ends_it_at_once(
    folder: Path,
) -> None:
    with started(folder, "run", "job.yaml", "--set", FOREVER, "--workdir", "run") as command:
        command.wait_for("Running", "updates")
        command.send(signal.SIGINT)
        first = command.finish()
    assert first.code == 128 + signal.SIGINT, first
    (checkpoint,) = (folder / "run" / "checkpoints").iterdir()
    kept = int(checkpoint.name.removeprefix("step-"))
    stopped_at = steps_of(folder / "run")
    assert kept >= stopped_at > 0
    lines = first.out.splitlines()
    assert "Stopped by Ctrl-C: cartpole: impala on CartPole-v1" in lines
    assert f"  checkpoint written at step {kept:,}" in lines
    assert "  policy     run/policy" in lines
    assert lines[-2:] == [
        "Evaluate:  rltrain evaluate run/policy",
        "Continue:  rltrain run run --resume",
    ]
    assert json.loads((folder / "run" / "policy" / "policy.json").read_text())["progress"]
    assert "uspend" not in first.out, "words of a cluster"

    with started(folder, "run", "run", "--resume") as command:
        assert steps_in(command.wait_for("Running", "updates")) >= kept
        processes = psutil.Process(command.process.pid).children(recursive=True)
        learner = next(process for process in processes if "learner" in " ".join(process.cmdline()))
        learner.suspend()  # prevents an orderly end, however fast it is
        command.send(signal.SIGTERM)
        command.wait_for("Stopping")
        command.send(signal.SIGINT)
        second = command.finish()
    assert second.code == 128 + signal.SIGINT, second
    assert steps_of(folder / "run") >= stopped_at
    assert len(processes) >= 3  # the template, the learner, the sampler
    _, alive = psutil.wait_procs(processes, timeout=SECONDS_MAX)
    assert not alive
    curve = [point["environmentSteps"] for point in status_of(folder / "run")["curve"]]
    assert curve == sorted(curve)
    assert curve[0] <= kept <= curve[-1], "the curve of a resumed run begins where the run began"
    points = [json.loads(line) for line in (folder / "run" / "progress.jsonl").read_text().splitlines()]
    for name in ("seconds", "environmentSteps", "episodes", "updates"):
        values = [point[name] for point in points]
        assert values == sorted(values), name


def test_the_samplers_of_a_running_job_are_scaled(folder: Path) -> None:
    run = folder / "run"
    with started(folder, "run", "job.yaml", "--set", FOREVER, "--workdir", "run") as command:
        command.wait_for("Running", "updates")
        for samplers in (3, 2):
            scaled = rltrain(folder, "scale", "run/", "--samplers", str(samplers))
            assert (scaled.code, scaled.out) == (0, f"run: scaled to {samplers} samplers\n"), scaled
            while status_of(run)["sampler"]["summary"] != f"{samplers}/{samplers}":
                command.wait_for("Running")
        command.send(signal.SIGINT)
        ended = command.finish()
    assert ended.code == 128 + signal.SIGINT, ended
    status = status_of(run)
    assert (status["restarts"], status["failures"]) == (0, 0)
    assert yaml.safe_load((run / "job.yaml").read_text())["spec"]["sampler"]["replicas"] == 2
    scaled = rltrain(folder, "scale", "run/", "--samplers", "4")
    assert scaled.code == 2, scaled
    assert scaled.err.endswith("continue it with: rltrain run run --resume --set sampler.replicas=4\n")


def steps_in(line: str) -> int:
    """`00:03  Running  412,160 steps …`"""
    return int(line.split(" steps")[0].split()[-1].replace(",", ""))
