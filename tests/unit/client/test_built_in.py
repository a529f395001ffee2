"""Built-in examples by name, and the extra that is required to train them."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import rltrain, succeeded
from rltraining import built_in, local

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_the_examples_are_listed_with_their_first_line() -> None:
    lines = succeeded("examples").splitlines()
    zoo = [f"zoo/{path.stem}" for path in sorted(EXAMPLES.glob("zoo/*.yaml"))]
    assert [line.split()[0] for line in lines] == [
        *sorted(path.stem for path in EXAMPLES.glob("*.yaml")),
        *zoo,
    ]
    (pendulum,) = [line for line in lines if line.startswith("pendulum-ppo ")]
    text = (EXAMPLES / "pendulum-ppo.yaml").read_text()
    assert text.startswith(f"# {pendulum.removeprefix('pendulum-ppo').strip()}\n")


def test_the_folder_of_the_examples_is_printed_on_standard_error() -> None:
    assert rltrain("examples").stderr == f"\nfolder of the examples: {built_in.FOLDER}\n"


def test_the_name_of_an_example_is_a_manifest() -> None:
    assert (
        succeeded("validate", "cartpole-impala") == "ok: cartpole-impala: cartpole (impala on CartPole-v1)\n"
    )
    assert "your manifest" in succeeded("explain", "cartpole-impala", "--preset", "Classic")
    assert succeeded("validate", "zoo/hopper-ppo") == "ok: zoo/hopper-ppo: hopper-ppo (ppo on Hopper-v5)\n"


def test_a_file_with_the_name_of_an_example_comes_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert built_in.find("cartpole-impala") is not None
    Path("cartpole-impala").write_text("kind: Mine")
    assert built_in.find("cartpole-impala") is None
    assert rltrain("validate", "cartpole-impala").exit_code == 2


@pytest.mark.parametrize(
    "name",
    ["nope", "zoo", "hopper-ppo", "../examples/cartpole-impala", "", "a" * 5000, "cartpole-impala.yaml"],
)
def test_no_other_name_is_an_example(name: str) -> None:
    assert built_in.find(name) is None


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("cartpole-impal", ": did you mean the example cartpole-impala"),
        ("hopper-ppo", ": did you mean the example zoo/hopper-ppo?"),
        ("zoo/hoper-ppo", ": did you mean the example zoo/hopper-ppo"),
        ("zoo/cartpole-pp", ": did you mean the example zoo/cartpole-ppo"),
        ("examples/cartpole-impala.yaml", ": did you mean the example cartpole-impala?"),
        ("CartPole-v1", ": did you mean the example cartpole-"),
        ("maze", ", and no example of this name: rltrain examples lists all"),
        ("runs/maze", "\n"),
        ("job.yaml", "\n"),
    ],
)
def test_a_name_that_does_not_exist_is_reported_with_similar_examples(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, hint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for command in ("validate", "explain", "run"):
        told = rltrain(command, name)
        assert told.exit_code == 2
        assert f"error: {name}: there is no such file{hint}" in told.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("run", "cartpole-impala"),
        ("evaluate", "runs/first/policy"),
        ("export", "runs/first/policy"),
        ("report", "runs/first"),
        ("compare", "runs/first", "--output", "curves.png"),
    ],
    ids=lambda command: command[0],
)
def test_a_command_without_its_packages_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setattr(local, "MODULES", ("no_such_module",))
    result = rltrain(*command)
    assert result.exit_code == 2
    assert result.stderr.endswith(
        "needs packages that are not installed (no_such_module): "
        "pip install -c constraints.txt dist/*.whl 'rltraining[local]'\n"
    )
