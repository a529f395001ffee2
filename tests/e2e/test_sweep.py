"""`rltrain run --sweep`: several runs from one manifest, to the end, interrupted, and gone on with."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from rltrain_command import MANIFEST, rltrain, started

RATES = "algorithm.impala.learningRate=1e-3,1e-4"
NAMES = [f"learningRate={rate},seed={seed}" for rate in ("0.001", "0.0001") for seed in (0, 1)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "job.yaml").write_text(MANIFEST)
    return tmp_path


def phase_of(run: Path) -> str:
    return str(json.loads((run / "status.json").read_text())["status"]["phase"])


def test_a_sweep_is_interrupted_and_gone_on_with(folder: Path) -> None:
    sweep = folder / "sweep"
    steps = "stop.environmentSteps=20000"
    arguments = ("--set", steps, "--sweep", RATES, "--seeds", "2", "--workdir", sweep)
    with started(folder, "run", "job.yaml", *arguments) as command:
        command.wait_for(NAMES[0], "Succeeded")
        command.wait_for(NAMES[1], "Pending")
        again = rltrain(folder, "run", sweep, "--resume")
        assert (again.code, again.out) == (2, "")
        assert again.err.endswith("sweep: another rltrain is running in it\n")
        command.send(signal.SIGINT)
        ended = command.finish()
    assert ended.code == 130, ended
    assert "Go on:  rltrain run sweep --resume" in ended.out
    assert not (sweep / NAMES[2] / "status.json").exists()
    first = (sweep / NAMES[0] / "status.json").read_bytes()

    ended = rltrain(folder, "run", sweep, "--resume", "--parallel", "2")
    assert (ended.code, ended.err) == (0, ""), ended
    assert (sweep / NAMES[0] / "status.json").read_bytes() == first
    assert [phase_of(sweep / name) for name in NAMES] == ["Succeeded"] * 4
    assert (sweep / NAMES[2] / "policy" / "policy.json").is_file()
    assert (sweep / NAMES[2] / "logs" / "rltrain.log").is_file()
    assert "learningRate   RUNS   FAILED" in ended.out
    points = json.loads((sweep / "comparison.json").read_text())["points"]
    assert [(len(point["runs"]), point["succeeded"]) for point in points] == [(2, 2)] * 2
    assert all(run["steps"] >= 20_000 for point in points for run in point["runs"])
    assert (sweep / "comparison.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_that_fails_does_not_end_the_sweep(folder: Path) -> None:
    arguments = ("--sweep", "environment.id=Nowhere-v0,CartPole-v1", "--workdir", "sweep")
    ended = rltrain(folder, "run", "job.yaml", *arguments)
    assert ended.code == 1, ended
    assert phase_of(folder / "sweep" / "id=Nowhere-v0,seed=0") == "Failed"
    assert phase_of(folder / "sweep" / "id=CartPole-v1,seed=0") == "Succeeded"
    assert "Nowhere" in next(line for line in ended.out.splitlines() if "Failed" in line)
