from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rltraining import workdir
from rltraining.errors import UsageError
from rltraining.jobfile import JobFile
from rltraining_api.manifest import load_manifest


@pytest.fixture
def run(tmp_path: Path, manifest: str) -> Path:
    folder = tmp_path / "runs" / "cartpole-20260101-000000"
    folder.mkdir(parents=True)
    JobFile(load_manifest(manifest)).save(folder / workdir.JOB_FILE)
    return folder


def test_a_folder_with_a_run_is_only_used_on_purpose(run: Path) -> None:
    with pytest.raises(UsageError, match="holds a run already: continue it with --resume"):
        workdir.check(run, "new")
    workdir.check(run, "resume")
    workdir.check(run, "overwrite")
    workdir.check(run.parent, "new")
    workdir.check(run.parent / "fresh", "new")
    with pytest.raises(UsageError, match="holds no run to resume"):
        workdir.check(run.parent, "resume")


@pytest.mark.parametrize("mode", ["new", "overwrite"])
def test_what_no_run_wrote_is_neither_a_run_nor_replaced(
    tmp_path: Path, manifest: str, mode: workdir.Mode
) -> None:
    """A user's manifest, and checkpoints without a manifest."""
    (tmp_path / "job.yaml").write_text(manifest)
    assert not workdir.holds_run(tmp_path)
    with pytest.raises(UsageError, match=r"holds a job\.yaml of yours"):
        workdir.check(tmp_path, mode)
    (tmp_path / "job.yaml").unlink()
    (tmp_path / "checkpoints").mkdir()
    workdir.check(tmp_path, mode)
    (tmp_path / "checkpoints" / "step-000000031964").mkdir()
    with pytest.raises(UsageError, match=r"holds checkpoints of a run that has no job\.yaml"):
        workdir.check(tmp_path, mode)


def test_checkpoints_whose_manifest_is_gone_may_be_resumed_and_another_one_is_to_be_moved_away(
    tmp_path: Path,
) -> None:
    (tmp_path / "checkpoints" / "step-000000031964").mkdir(parents=True)
    workdir.check(tmp_path, "resume")
    (tmp_path / "job.yaml").touch()
    with pytest.raises(UsageError, match=r"its job\.yaml was not written by this run: move it away"):
        workdir.check(tmp_path, "resume")


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    with pytest.raises(UsageError, match="is a file"):
        workdir.check(path, "new")
    with pytest.raises(UsageError, match="cannot be written"), workdir.held(path / "below", "new"):
        pass


def test_overwriting_deletes_what_a_run_left_and_nothing_else(run: Path) -> None:
    (run / "checkpoints" / "10").mkdir(parents=True)
    (run / "notes.txt").write_text("mine")
    precious = run.parent / "precious"
    precious.mkdir()
    (precious / "data").touch()
    (run / "policy").symlink_to(precious)
    workdir.clear(run)
    assert [path.name for path in run.iterdir()] == ["notes.txt"]
    assert (precious / "data").exists()
    (run / "policy").mkdir()  # belongs to no run, because the run was cleared
    workdir.clear(run)
    assert (run / "policy").exists()


def test_overwriting_that_was_broken_off_can_be_begun_again(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run / "checkpoints").mkdir()
    (run / "policy").mkdir()
    with monkeypatch.context() as broken:
        broken.setattr("shutil.rmtree", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            workdir.clear(run)
    workdir.check(run, "overwrite")
    workdir.clear(run)
    assert not list(run.iterdir())


def test_two_commands_never_work_in_one_folder(tmp_path: Path) -> None:
    with (
        workdir.held(tmp_path / "new", "new"),
        pytest.raises(UsageError, match="another rltrain"),
        workdir.held(tmp_path / "new", "new"),
    ):
        pass
    with workdir.held(tmp_path / "new", "new"):
        pass


def test_the_newest_run_of_a_job_is_found(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, manifest: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for age, name in (
        (50, "cartpole-20260102-000000"),
        (10, "acrobot-20260101-000000"),
        (5, "cartpole-large-20260101-000000"),
    ):
        folder = tmp_path / "runs" / name
        folder.mkdir()
        JobFile(load_manifest(manifest)).save(folder / workdir.JOB_FILE)
        os.utime(folder / workdir.JOB_FILE, times=(0, 2e9 - age))
    assert workdir.newest("cartpole") == Path("runs/cartpole-20260102-000000")
    assert workdir.newest(None) == Path("runs/cartpole-large-20260101-000000")
    with pytest.raises(UsageError, match="no run to resume in runs/"):
        workdir.newest("pendulum")
    now = datetime(2026, 11, 21, 1, 43, tzinfo=UTC)
    assert workdir.default("cartpole", now) == Path("runs/cartpole-20261121-014300")


def test_runs_of_the_same_second_get_different_default_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    now = datetime(2026, 11, 21, 1, 43, 59, tzinfo=UTC)
    folders = [workdir.create_default("cartpole", now) for _ in range(3)]
    assert [str(folder) for folder in folders] == [
        "runs/cartpole-20261121-014359",
        "runs/cartpole-20261121-014400",
        "runs/cartpole-20261121-014401",
    ]
    assert all(folder.is_dir() for folder in folders)


def test_a_default_folder_that_cannot_be_created_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").symlink_to("nowhere")
    with pytest.raises(UsageError, match="runs: cannot be written: File exists"):
        workdir.create_default("cartpole", datetime(2026, 11, 21, tzinfo=UTC))
