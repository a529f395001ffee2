"""Stop rules, checkpoint settings and the number of samplers change while the job runs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from rltraining_api.job import JobSpec
from rltraining_api.lifecycle import Stop
from rltraining_trainer.roles.context import read_job
from rltraining_trainer.roles.spec_watcher import PERIOD, SpecWatcher


class JobFile:
    """The job's file. Each rewrite gets a newer modification time, as from the operator."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._written = 1

    def write(self, text: str) -> None:
        new = self.path.with_suffix(".new")
        new.write_text(text)
        self._written += 1
        os.utime(new, ns=(self._written, self._written))
        new.replace(self.path)

    def write_stop(self, *, samplers: int = 1, checkpoint: Any = None, **stop: Any) -> None:
        spec = {
            "checkpoint": checkpoint or {},
            "algorithm": {"impala": {}},
            "environment": {"id": "CartPole-v1"},
            "sampler": {"replicas": samplers},
            "stop": stop,
        }
        job = {"apiVersion": "rltraining.dev/v1alpha1", "kind": "RLTrainingJob", "metadata": {"name": "a"}}
        self.write(json.dumps(job | {"spec": spec}))


@pytest.fixture
def file(tmp_path: Path) -> JobFile:
    job = JobFile(tmp_path / "job.json")
    job.write_stop(environmentSteps=100)
    return job


@pytest.fixture
def spec(file: JobFile) -> JobSpec:
    return read_job(file.path).spec


def stop_at(live: SpecWatcher, now: float) -> Stop:
    live.look(now)
    return live.stop


def test_rules_that_stay_are_the_same_object(file: JobFile, spec: JobSpec) -> None:
    live = SpecWatcher(file.path, spec)

    assert all(stop_at(live, now) is spec.stop for now in (10.0, 10.1, 12.0, 50.0))


def test_a_changed_file_is_seen_within_a_period(file: JobFile, spec: JobSpec) -> None:
    live = SpecWatcher(file.path, spec)
    stop_at(live, 10.0)
    file.write_stop(environmentSteps=200, meanReturn={"atLeast": 3})

    assert stop_at(live, 10.0 + 0.9 * PERIOD) == spec.stop, "the file is not looked at in every step"
    changed = stop_at(live, 10.0 + PERIOD)
    assert changed.environment_steps == 200
    assert changed.mean_return is not None
    assert stop_at(live, 99.0) is changed


def test_the_number_of_samplers_changes_too(file: JobFile, spec: JobSpec) -> None:
    live = SpecWatcher(file.path, spec)
    file.write_stop(samplers=7, environmentSteps=100)
    live.look(0.0)

    assert live.samplers == 7
    assert live.stop is spec.stop


def test_the_settings_of_checkpoints_change_too(file: JobFile, spec: JobSpec) -> None:
    live = SpecWatcher(file.path, spec)
    file.write_stop(checkpoint={"everySeconds": 5, "keep": 9}, environmentSteps=100)
    live.look(0.0)

    assert (live.checkpoint.every_seconds, live.checkpoint.keep) == (5, 9)
    assert live.stop is spec.stop


def test_a_change_before_the_first_look_is_seen(file: JobFile, spec: JobSpec) -> None:
    file.write_stop(environmentSteps=200)  # after the job was read, and before the rules were made
    live = SpecWatcher(file.path, spec)

    assert stop_at(live, 0.0).environment_steps == 200


@pytest.mark.parametrize("text", ["", "{", "{}"])
def test_an_unreadable_job_changes_nothing_and_is_logged(
    file: JobFile, spec: JobSpec, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    live = SpecWatcher(file.path, spec)
    stop_at(live, 0.0)
    file.write(text)

    assert stop_at(live, 10.0) is spec.stop
    assert "the earlier settings stay in force" in caplog.text
    file.write_stop(environmentSteps=300)
    assert stop_at(live, 20.0).environment_steps == 300


def test_a_file_that_is_gone_for_a_moment_changes_nothing(file: JobFile, spec: JobSpec) -> None:
    live = SpecWatcher(file.path, spec)
    stop_at(live, 0.0)
    file.path.unlink()
    assert stop_at(live, 10.0) is spec.stop

    file.write_stop(environmentSteps=200)
    assert stop_at(live, 20.0).environment_steps == 200
