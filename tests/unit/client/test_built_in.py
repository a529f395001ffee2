"""Built-in examples by name, and the extra with which they are trained."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import rltrain, succeeded
from rltraining import built_in, local

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_the_examples_are_listed_with_their_first_line() -> None:
    lines = succeeded("examples").splitlines()
    assert [line.split()[0] for line in lines] == sorted(path.stem for path in EXAMPLES.glob("*.yaml"))
    (pendulum,) = [line for line in lines if line.startswith("pendulum-ppo ")]
    text = (EXAMPLES / "pendulum-ppo.yaml").read_text()
    assert text.startswith(f"# {pendulum.removeprefix('pendulum-ppo').strip()}\n")


def test_the_name_of_an_example_is_a_manifest() -> None:
    assert (
        succeeded("validate", "cartpole-impala") == "ok: cartpole-impala: cartpole (impala on CartPole-v1)\n"
    )
    assert "your manifest" in succeeded("explain", "cartpole-impala", "--preset", "Classic")


def test_a_file_with_the_name_of_an_example_comes_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert built_in.find("cartpole-impala") is not None
    Path("cartpole-impala").write_text("kind: Mine")
    assert built_in.find("cartpole-impala") is None
    assert rltrain("validate", "cartpole-impala").exit_code == 2


@pytest.mark.parametrize(
    "name", ["nope", "../examples/cartpole-impala", "", "a" * 5000, "cartpole-impala.yaml"]
)
def test_no_other_name_is_an_example(name: str) -> None:
    assert built_in.find(name) is None


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
        "needs packages that are not installed (no_such_module): pip install 'rltraining[local]'\n"
    )
