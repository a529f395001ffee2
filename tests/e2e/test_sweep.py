"""`rltrain run --sweep`: several runs from one manifest."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from rltrain_command import MANIFEST, rltrain, started

SWEEP = ("--sweep", "environment.id=Nowhere-v0,mine:Cart-v0", "--seeds", "2")
MINE = """
import gymnasium as gym

gym.register("Cart-v0", entry_point=gym.spec("CartPole-v1").entry_point, max_episode_steps=500)
"""
FOREVER = 1_000_000_000
FAILS = [f"id=Nowhere-v0,seed={seed}" for seed in (0, 1)]
LEARNS = [f"id=mine-Cart-v0,seed={seed}" for seed in (0, 1)]


def phase_of(run: Path) -> str:
    return str(json.loads((run / "status.json").read_text())["status"]["phase"])


def test_a_sweep_outlives_a_run_that_fails_and_goes_on_after_ctrl_c(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(MANIFEST)
    (tmp_path / "mine.py").write_text(MINE)  # found beside the manifest, as with a single run
    sweep = tmp_path / "sweep"
    forever = ("--set", f"stop.environmentSteps={FOREVER}")
    with started(tmp_path, "run", "job.yaml", *SWEEP, *forever, "--workdir", sweep) as command:
        assert "Nowhere" in command.wait_for(FAILS[0], "Failed")
        command.wait_for(LEARNS[0], "Running")
        again = rltrain(tmp_path, "run", sweep, "--resume")
        assert (again.code, again.out) == (2, "")
        assert again.err.endswith("sweep: another rltrain is running in it\n")
        command.send(signal.SIGINT)
        ended = command.finish()
    assert ended.code == 130, ended
    assert "Continue:  rltrain run sweep --resume" in ended.out
    assert any(LEARNS[0] in line and "Stopped" in line for line in ended.out.splitlines())
    assert not (sweep / LEARNS[1] / "status.json").exists()
    over = (sweep / FAILS[0] / "status.json").read_bytes()

    for name in LEARNS:  # as a user who stops a run early would
        job = sweep / name / "job.yaml"
        job.write_text(job.read_text().replace(str(FOREVER), "10000"))
    ended = rltrain(tmp_path, "run", sweep, "--resume", "--parallel", "2")
    assert ended.code == 1, ended
    assert "fewer than 5 seeds: " in ended.err
    assert [phase_of(sweep / name) for name in FAILS + LEARNS] == ["Failed"] * 2 + ["Succeeded"] * 2
    assert (sweep / FAILS[0] / "status.json").read_bytes() == over, "what is over is left as it is"
    assert (sweep / LEARNS[1] / "policy" / "policy.json").is_file()
    assert (sweep / LEARNS[1] / "logs" / "rltrain.log").is_file()
    assert all((sweep / name / "learning_curve.png").is_file() for name in LEARNS)

    assert "id             RUNS   FAILED" in ended.out
    points = json.loads((sweep / "comparison.json").read_text())["points"]
    assert [(point["label"], point["succeeded"], point["failed"]) for point in points] == [
        ("id=mine:Cart-v0", 2, 0),
        ("id=Nowhere-v0", 0, 2),
    ]
    assert all(run["steps"] >= 10_000 for run in points[0]["runs"])
    assert (sweep / "comparison.png").read_bytes().startswith(b"\x89PNG")

    ended = rltrain(tmp_path, "run", sweep, "--resume", "--set", "stop.environmentSteps=20000")
    assert ended.code == 1, ended
    assert [phase_of(sweep / name) for name in FAILS + LEARNS] == ["Failed"] * 2 + ["Succeeded"] * 2
    assert (sweep / FAILS[0] / "status.json").read_bytes() == over
    points = json.loads((sweep / "comparison.json").read_text())["points"]
    assert all(run["steps"] >= 20_000 for run in points[0]["runs"])
