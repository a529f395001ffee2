"""`rltrain rerun` explains wrong input."""

from __future__ import annotations

from pathlib import Path

from command_line import refused
from rltraining.jobfile import load


def test_folders_without_a_run_or_a_recording_are_explained(tmp_path: Path) -> None:
    assert "holds no run: name the folder of a run" in refused("rerun", tmp_path)
    (tmp_path / "cluster" / "recording").mkdir(parents=True)
    assert "nothing is recorded" in refused("rerun", tmp_path / "cluster", code=1)
    load("cartpole-impala").save(tmp_path / "job.yaml")
    assert refused("rerun", tmp_path, "--from", "3", "--to", "2") == "--to 2: is before --from 3"
    error = refused("rerun", tmp_path, code=1)
    assert "nothing is recorded: train with --set recording.megabytes=256" in error
