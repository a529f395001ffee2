"""`rltrain explain`: each value of a job, with its source."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import refused, rltrain, succeeded
from rltraining import explain
from rltraining_api.manifest import load_manifest
from rltraining_api.presets import resolve


def table(output: str) -> dict[str, tuple[str, str]]:
    """Returns value and source by path."""
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
    assert found["algorithm.impala.batchUnrolls"] == ("1", "default: the paper has 32 sequences")
    assert found["algorithm.impala.unrollLength"] == ("16", "preset Classic: measured (docs/defaults.md)")
    assert found["network.mlp.hiddenSizes"][1].startswith("preset Classic: ")
    assert found["environment.id"] == ("CartPole-v1", "your manifest")


def test_what_is_shown_is_the_whole_job_as_it_is_run(file: Path) -> None:
    found = table(succeeded("explain", file, "--preset", "Atari"))
    resolved = resolve(load_manifest(file), "Atari").job.spec
    written = {".".join(path) for path, _ in explain._leaves(resolved.to_dict(), ())}
    assert set(found) == written | {"network.valueNetwork"}
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
    assert "; or name a preset with --preset" in result.stderr


def test_a_preset_is_offered_before_the_traceback_of_an_environment(file: Path) -> None:
    result = rltrain("explain", file, "--set", "environment.id=not_there:Own-v0")
    assert result.stderr.splitlines()[0].endswith("'not_there'; or name a preset with --preset")


@pytest.mark.parametrize("preset", [(), ("--preset", "Classic")])
@pytest.mark.parametrize(
    ("name", "reason"),
    [("NormalizeReward", "cannot be used: "), ("TimeLimits", "did you mean TimeLimit?")],
)
def test_a_rejected_wrapper_is_rejected_with_and_without_a_preset(
    file: Path, preset: tuple[str, ...], name: str, reason: str
) -> None:
    told = refused("explain", file, *preset, "--set", f"environment.wrappers=[{{name: {name}}}]", code=1)
    assert told.startswith("spec.environment.wrappers[0].name: ")
    assert reason in told
    assert "--preset" not in told


def test_a_misspelt_environment_gets_no_advice_to_name_a_preset(file: Path) -> None:
    told = refused("explain", file, "--set", "environment.id=CartPole-v7", code=1)
    assert "--preset" not in told


@pytest.mark.parametrize(
    ("changes", "value"),
    [
        ((), "Separate"),
        (("network.lstm={}",), "Shared"),
        (("network=natureCnn",), "Shared"),
        (("algorithm=dqnApex",), None),
    ],
)
def test_the_value_network_is_shown_as_it_is_built(
    file: Path, changes: tuple[str, ...], value: str | None
) -> None:
    options = (part for change in changes for part in ("--set", change))
    found = table(succeeded("explain", file, "--preset", "Classic", *options))
    source = "default: baselines, Stable-Baselines3: the same"
    assert found.get("network.valueNetwork") == (None if value is None else (value, source))


@pytest.mark.parametrize(
    ("algorithm", "changes", "value"),
    [
        ("ppo", (), "Learner"),
        ("a2c", ("algorithm.a2c.gradients=Samplers",), "Samplers"),
        ("a3c", (), "Samplers"),
        ("a3c", ("algorithm.a3c.gradients=Learner",), "Learner"),
        ("impala", (), None),
    ],
)
def test_the_place_of_gradients_is_shown(
    file: Path, algorithm: str, changes: tuple[str, ...], value: str | None
) -> None:
    options = (part for change in (f"algorithm={algorithm}", *changes) for part in ("--set", change))
    found = table(succeeded("explain", file, "--preset", "Classic", *options))
    assert found.get(f"algorithm.{algorithm}.gradients", (None,))[0] == value


def test_the_distribution_is_shown_for_actions_in_a_box(file: Path) -> None:
    own = ("--set", "network.gaussian.squash=Tanh")
    assert "network.gaussian.squash" not in table(succeeded("explain", file))
    for made in (("--preset", "MuJoCo"), ("--set", "environment.id=Pendulum-v1")):
        found = table(succeeded("explain", file, *made))
        assert found["network.gaussian.squash"][0] == "Clip"
        assert found["network.gaussian.initialLogStd"][0] == "0.0"
        found = table(succeeded("explain", file, *made, *own))
        assert found["network.gaussian.squash"] == ("Tanh", "your manifest")
    of_sac = table(succeeded("explain", file, "--preset", "MuJoCo", "--set", "algorithm=sac"))
    assert not [path for path in of_sac if path.startswith("network.gaussian")]


def test_the_entropy_of_sac_depends_on_the_dimensions_of_actions(file: Path) -> None:
    sac, key = ("explain", file, "--set", "algorithm=sac"), "algorithm.sac.targetEntropy"
    default = "default: paper: the same"
    assert table(succeeded(*sac, "--set", "environment.id=Pendulum-v1"))[key] == ("-1.0", default)
    assert table(succeeded(*sac, "--preset", "MuJoCo"))[key] == ("minus the action's dimensions", default)
    own = table(succeeded(*sac, "--preset", "MuJoCo", "--set", "algorithm.sac.targetEntropy=-3"))
    assert own[key] == ("-3.0", "your manifest")


def test_the_note_on_the_batch_of_ppo_is_not_shown_for_normalisation(file: Path) -> None:
    found = table(succeeded("explain", file, "--preset", "MuJoCo", "--set", "algorithm=ppo"))
    source = "preset MuJoCo: CleanRL ppo_continuous_action.py"
    assert found["environment.normalize.rewards"] == ("true", source)
    assert found["algorithm.ppo.rolloutLength"][1].startswith(f"{source}: 2048 steps of one environment")


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
