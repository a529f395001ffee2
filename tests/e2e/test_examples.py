"""The examples of Ape-X and of several learners, as people run them, a short while each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rltrain_command import rltrain

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("example", "steps"),
    [("cartpole-dqn-apex", 20_000), ("pendulum-ddpg-apex", 12_000), ("cartpole-two-learners", 60_000)],
)
def test_an_example_runs_and_its_policy_can_be_used(tmp_path: Path, example: str, steps: int) -> None:
    changes = (f"stop.environmentSteps={steps}", "stop.meanReturn=null", "stop.smoothedReturn=null")
    ended = rltrain(
        tmp_path,
        *("run", str(EXAMPLES / f"{example}.yaml"), "--workdir", "run"),
        *(word for change in changes for word in ("--set", change)),
    )
    assert ended.code == 0, ended
    status = json.loads((tmp_path / "run" / "status.json").read_text())["status"]
    assert status["progress"]["environmentSteps"] >= steps
    assert status["progress"]["updates"] > 0
    assert status["restarts"] == status["failures"] == 0
    if "apex" in example:
        memory = status["replay"]
        assert memory["inserted"] == memory["size"] + memory["evicted"] + memory["lost"]
        assert memory["prioritiesApplied"] > 0
        assert "drawn" in ended.out

    evaluated = rltrain(tmp_path, "evaluate", "run/policy", "--episodes", "2")
    assert evaluated.code == 0, evaluated
