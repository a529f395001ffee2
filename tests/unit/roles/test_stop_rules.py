"""Stop rules that change while the job runs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from rltraining_api.lifecycle import Stop
from rltraining_trainer.roles.stop_rules import PERIOD, StopRules


class JobFile:
    """The job's file, as the operator rewrites it: each time it looks newer."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._written = 1

    def write(self, text: str) -> None:
        new = self.path.with_suffix(".new")
        new.write_text(text)
        self._written += 1
        os.utime(new, ns=(self._written, self._written))
        new.replace(self.path)

    def write_stop(self, **stop: Any) -> None:
        spec = {"algorithm": {"impala": {}}, "environment": {"id": "CartPole-v1"}, "stop": stop}
        job = {"apiVersion": "rltraining.dev/v1alpha1", "kind": "RLTrainingJob", "metadata": {"name": "a"}}
        self.write(json.dumps(job | {"spec": spec}))


@pytest.fixture
def file(tmp_path: Path) -> JobFile:
    job = JobFile(tmp_path / "job.json")
    job.write_stop(environmentSteps=100)
    return job


FIRST = Stop(environment_steps=100)


def test_rules_that_stay_are_the_same_object(file: JobFile) -> None:
    rules = StopRules(file.path, FIRST)

    assert all(rules.current(now) is FIRST for now in (10.0, 10.1, 12.0, 50.0))


def test_a_changed_file_is_seen_within_a_period(file: JobFile) -> None:
    rules = StopRules(file.path, FIRST)
    rules.current(10.0)
    file.write_stop(environmentSteps=200, meanReturn={"atLeast": 3})

    assert rules.current(10.0 + 0.9 * PERIOD) == FIRST, "the file is not looked at in every step"
    changed = rules.current(10.0 + PERIOD)
    assert changed.environment_steps == 200
    assert changed.mean_return is not None
    assert rules.current(99.0) is changed


def test_a_change_before_the_first_look_is_seen(file: JobFile) -> None:
    file.write_stop(environmentSteps=200)  # after the job was read, before the rules were made
    rules = StopRules(file.path, FIRST)

    assert rules.current(0.0).environment_steps == 200


@pytest.mark.parametrize("text", ["", "{", "{}"])
def test_what_cannot_be_read_changes_nothing_and_is_told(
    file: JobFile, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    rules = StopRules(file.path, FIRST)
    rules.current(0.0)
    file.write(text)

    assert rules.current(10.0) is FIRST
    assert "the stop rules stay as they were" in caplog.text
    file.write_stop(environmentSteps=300)
    assert rules.current(20.0).environment_steps == 300


def test_a_file_that_is_gone_for_a_moment_changes_nothing(file: JobFile) -> None:
    rules = StopRules(file.path, FIRST)
    rules.current(0.0)
    file.path.unlink()
    assert rules.current(10.0) is FIRST

    file.write_stop(environmentSteps=200)
    assert rules.current(20.0).environment_steps == 200
