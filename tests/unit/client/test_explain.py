"""`rltrain explain`: each value of a job, with its source."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import refused, rltrain, succeeded
from rltraining import explain
from rltraining_api.manifest import load_manifest
from rltraining_api.presets import resolve


def table(output: str) -> dict[str, tuple[str, str]]:
    """Value and source by path."""
    rows = (line.split("  ", 1) for line in output.splitlines())
    cells = ((path, *rest.strip().split("  ", 1)) for path, rest in rows)
    return {path: (value.strip(), source.strip()) for path, value, source in cells}


def test_each_value_has_a_source(file: Path) -> None:
    change = ("--set", "algorithm.impala.lambda=0.5", "--set", "algorithm.impala.gradientClip=null")
    found = table(succeeded("explain", file, *change))
    assert found["preset"] == ("Classic", "the environment's spaces")
    assert found["algorithm.impala.lambda"] == ("0.5", "your manifest")
    assert found["algorithm.impala.gradientClip"] == ("null", "your manifest")
    assert found["algorithm.impala.rhoClip"] == ("1.0", "default: paper: 1, section 5.2")
    assert found["algorithm.impala.unrollLength"][1].startswith("preset Classic: ")
    assert found["network.mlp.hiddenSizes"][1].startswith("preset Classic: ")
    assert found["environment.id"] == ("CartPole-v1", "your manifest")


def test_what_is_shown_is_the_whole_job_as_it_is_run(file: Path) -> None:
    found = table(succeeded("explain", file, "--preset", "Atari"))
    resolved = resolve(load_manifest(file), "Atari").job.spec
    assert set(found) == {".".join(path) for path, _ in explain._leaves(resolved.to_dict(), ())}
    assert found["preset"] == ("Atari", "--preset")


def test_without_the_trainer_a_preset_is_needed(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "rltraining_trainer.environments", None)
    result = rltrain("explain", file)
    assert result.exit_code == 2
    assert "name a preset with --preset" in result.stderr
    assert table(succeeded("explain", file, "--preset", "MuJoCo"))["preset"] == ("MuJoCo", "--preset")


def test_an_environment_that_is_not_there_is_a_sentence(file: Path) -> None:
    result = rltrain("explain", file, "--set", "environment.id=NotThere-v0")
    assert result.exit_code == 1
    assert "there is no environment 'NotThere-v0'" in result.stderr


@pytest.mark.parametrize(
    ("algorithm", "environment", "sentence"),
    [
        ("dqnApex", "Pendulum-v1", "spec.algorithm.dqnApex: it needs Discrete actions, but "),
        ("ddpgApex", "CartPole-v1", "spec.algorithm.ddpgApex: it needs actions in a Box of floats, but "),
    ],
)
def test_an_algorithm_that_does_not_support_the_spaces_is_refused_as_in_a_run(
    file: Path, algorithm: str, environment: str, sentence: str
) -> None:
    changes = (f"algorithm={{{algorithm}: {{}}}}", f"environment.id={environment}")
    told = refused("explain", file, *(part for change in changes for part in ("--set", change)), code=1)
    assert sentence in told
