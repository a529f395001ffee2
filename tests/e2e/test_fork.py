"""`rltrain fork`: a new run begins at a checkpoint of another one."""

from __future__ import annotations

import json
from pathlib import Path

from rltrain_command import Ended, rltrain

CHANGES = (
    "reproducible.blocks=2",
    "checkpoint.everySeconds=1",
    "checkpoint.keep=1000",
    "stop.meanReturn=null",
)


def hashes(run: Path) -> dict[int, str]:
    """Returns the hash of the parameters after each update."""
    lines = map(json.loads, (run / "hashes.jsonl").read_text().splitlines())
    return {line["update"]: line["parametersHash"] for line in lines}


def test_a_fork_repeats_a_reproducible_run_unless_a_setting_changes(tmp_path: Path) -> None:
    def train(*arguments: str) -> Ended:
        ended = rltrain(tmp_path, *arguments)
        assert ended.code == 0, ended
        return ended

    changes = [word for change in (*CHANGES, "stop.environmentSteps=240000") for word in ("--set", change)]
    train("run", "cartpole-ppo", *changes, "--set", "reproducible.hashEvery=1", "--workdir", "first")
    first = hashes(tmp_path / "first")
    checkpoints = sorted(path.name for path in (tmp_path / "first" / "checkpoints").iterdir())
    assert len(checkpoints) > 1

    # Begin in the middle: the same updates follow.
    middle = int(checkpoints[len(checkpoints) // 2 - 1].removeprefix("step-"))
    ended = train("fork", "first", "--at", str(middle + 1), "--workdir", "same")
    assert f"first/checkpoints/step-{middle:012}" in ended.out
    same = hashes(tmp_path / "same")
    assert same
    assert len(same) < len(first)
    assert same.items() <= first.items()

    # With another learning rate, other ones do.
    train(
        "fork", "first", "--at", str(middle), "--set", "algorithm.ppo.learningRate=1e-5", "--workdir", "other"
    )
    other = hashes(tmp_path / "other")
    assert other.keys() == same.keys()
    assert not other.items() & same.items()
