"""`rltrain rerun` explains wrong input."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import refused
from rltraining.jobfile import load
from rltraining_trainer.errors import BadConfiguration
from rltraining_trainer.roles.rerun import changed


def test_folders_without_a_run_or_a_recording_are_explained(tmp_path: Path) -> None:
    assert "holds no run: name the folder of a run" in refused("rerun", tmp_path)
    (tmp_path / "cluster" / "recording").mkdir(parents=True)
    assert "nothing is recorded" in refused("rerun", tmp_path / "cluster", code=1)
    load("cartpole-impala").save(tmp_path / "job.yaml")
    assert refused("rerun", tmp_path, "--from", "3", "--to", "2") == "--to 2: is before --from 3"
    error = refused("rerun", tmp_path, code=1)
    assert "nothing is recorded: train with --set recording.megabytes=256" in error


def test_another_algorithm_cannot_make_the_updates() -> None:
    recorded = load("cartpole-ppo").job
    slower = load("cartpole-ppo", ["algorithm.ppo.learningRate=1e-5"]).job
    assert changed(recorded, slower) is slower
    with pytest.raises(BadConfiguration, match="the updates are those of ppo, which impala cannot make"):
        changed(recorded, load("cartpole-ppo", ["algorithm=impala"]).job)
