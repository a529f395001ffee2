"""`rltrain fork` finds a checkpoint, and explains why it finds none."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import refused
from rltraining import fork
from rltraining.fork import newest_until
from rltraining.jobfile import load
from rltraining.run import RunOptions


def test_the_newest_checkpoint_until_a_step_is_found(tmp_path: Path) -> None:
    for name in ("step-000000000100", "step-000000000100-2", "step-000000000300", ".step-000000000400"):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
    for step, name in ((None, "300"), (300, "300"), (299, "100-2"), (100, "100-2")):
        assert newest_until(tmp_path, step).name == f"step-{'0' * 9}{name}"


def test_a_missing_run_or_checkpoint_is_explained(tmp_path: Path) -> None:
    assert "holds no run: name the folder of a run" in refused("fork", tmp_path)
    load("cartpole-impala").save(tmp_path / "job.yaml")
    assert refused("fork", tmp_path) == f"{tmp_path}: has no checkpoint yet"
    (tmp_path / "checkpoints" / "step-000000000100").mkdir(parents=True)
    assert refused("fork", tmp_path, "--at", "99").startswith("--at 99: the oldest checkpoint is at step 100")
    load("cartpole-impala", ["checkpoint.uri=file:///elsewhere"]).save(tmp_path / "job.yaml")
    assert "its checkpoints are at spec.checkpoint.uri: write a manifest" in refused("fork", tmp_path)


def test_a_folder_with_spaces_in_its_path_can_be_forked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "my runs" / "first  run"
    checkpoint = folder / "checkpoints" / "step-000000000100"
    checkpoint.mkdir(parents=True)
    load("cartpole-impala").save(folder / "job.yaml")
    begun: list[RunOptions] = []
    monkeypatch.setattr(fork, "run", lambda options: begun.append(options) or 0)

    fork.fork(folder, None, None, (), overwrite=False, plain=True)

    job = load(str(begun[0].file), begun[0].changes).job
    assert job.spec.checkpoint.resume_from == f"file://{checkpoint}"


def test_a_run_is_not_replaced_by_its_own_fork(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run" / "checkpoints" / "step-000000000100").mkdir(parents=True)
    load("cartpole-impala").save(tmp_path / "run" / "job.yaml")
    monkeypatch.chdir(tmp_path)
    for workdir in ("run", tmp_path / "run"):
        told = refused("fork", "run", "--workdir", workdir, "--overwrite")
        assert told == f"--workdir {workdir}: is the folder of the run to begin from: name another folder"
    assert (tmp_path / "run" / "checkpoints" / "step-000000000100").is_dir()
