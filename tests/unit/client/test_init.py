"""`rltrain init` writes a project that passes all checks, and never overwrites a file."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import pytest
from command_line import refused, succeeded
from gymnasium.utils.env_checker import check_env
from rltraining.jobfile import load
from rltraining_trainer.environments import make_environments
from rltraining_trainer.networks import build_actor_critic

MODULES = {"client_test_maze_env.py", "client_test_maze_net.py", "test_client_test_maze.py"}
FILES = {".gitignore", "Dockerfile", "README.md", "job.yaml", *MODULES}


def test_it_writes_a_project_of_the_folders_name_and_names_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "client-test-maze" / ".git").mkdir(parents=True)  # a fresh repository is empty
    lines = succeeded("init", "client-test-maze").splitlines()
    assert {line.split()[0] for line in lines[: len(FILES)]} == {f"client-test-maze/{name}" for name in FILES}
    assert lines[-4:] == [
        "next:",
        "  cd client-test-maze",
        "  rltrain run job.yaml",
        "  pip install pytest && pytest",
    ]
    assert {path.name for path in (tmp_path / "client-test-maze").iterdir()} == FILES | {".git"}
    (tmp_path / "new").mkdir()
    monkeypatch.chdir(tmp_path / "new")
    lines = succeeded("init", ".", "--name", "client-test-maze").splitlines()
    assert lines[-3:] == ["next:", "  rltrain run job.yaml", "  pip install pytest && pytest"]
    assert {path.name for path in (tmp_path / "new").iterdir()} == FILES
    assert load("job.yaml").job.metadata.name == "client-test-maze"
    assert "  cd 'my maze'" in succeeded("init", "my maze", "--name", "client-test-maze").splitlines()


def test_a_name_that_yaml_takes_for_something_else_is_a_name(tmp_path: Path) -> None:
    for name in ("true", "null", "on", "e1"):
        succeeded("init", tmp_path / name)
        assert load(str(tmp_path / name / "job.yaml")).job.metadata.name == name


def test_manifest_environment_and_network_fit_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    succeeded("init", tmp_path, "--name", "client-test-imported")  # no other test may use this name
    monkeypatch.syspath_prepend(tmp_path)
    spec = load(str(tmp_path / "job.yaml")).job.spec
    environments = make_environments(spec.environment, 2)
    build_actor_critic(spec.network, environments.single_observation_space, environments.single_action_space)
    environments.close()
    check_env(gym.make("Catch-v0", render_mode="rgb_array").unwrapped)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("{there}", "{there}: is not an empty folder: name a new one"),
        ("{there}/file", "{there}/file: is not an empty folder: name a new one"),
        ("{there}/file/new", "{there}/file/new: cannot be written: Not a directory"),
        ("{there}/My_Maze", "DIR My_Maze: as the name of a job it must be lower-case letters, digits"),
        ("{there}/new --name " + "m" * 60, "at most 50 characters: give another one with --name"),
        ("{there}/new --name client-test-taken", "a module client_test_taken_net is installed and would"),
    ],
)
def test_what_cannot_be_a_project_is_refused_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, sentence: str
) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "installed").mkdir()
    (tmp_path / "installed" / "client_test_taken_net.py").touch()
    monkeypatch.syspath_prepend(tmp_path / "installed")
    before = sorted(tmp_path.rglob("*"))
    told = refused("init", *arguments.format(there=tmp_path).split())
    assert sentence.format(there=tmp_path) in told
    assert sorted(tmp_path.rglob("*")) == before
