"""Trackers receive the points of progress.jsonl, and how the run ended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from own_runs import Begin, make_context
from rltraining_trainer.roles import record
from rltraining_trainer.tracking.messages import End, Point
from rltraining_trainer.tracking.trackers import Trackers


class Recording:
    """A tracker that keeps what it receives."""

    failure = "spec.tracking.wandb: points cannot be sent"

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.ended: End | None = None

    def write(self, point: Point) -> None:
        self.steps.append(point.step)

    def end(self, end: End) -> None:
        self.ended = end

    def join(self, timeout: float) -> None:
        """Does nothing: all points are here."""


@pytest.mark.parametrize("end", ["finished", "failed", "killed"])
def test_trackers_receive_each_point_and_the_end_of_the_run(
    end: End, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker: Any = Recording()
    monkeypatch.setattr(record, "start_trackers", lambda job, folder: Trackers([tracker]))
    begin = Begin(make_context(tmp_path))
    run = begin(begin.policy())
    assert run.active()
    run.update(10)
    assert run.active()
    (warning,) = run.report().warnings
    assert (warning.reason, warning.message) == ("TrackingFailed", tracker.failure)
    if end == "finished":
        run.finish()
    (missed,) = run.close(interrupted=end == "killed")
    assert (missed.reason, missed.message) == ("TrackingFailed", tracker.failure)
    points = (tmp_path / "progress.jsonl").read_text().splitlines()
    assert tracker.steps == [json.loads(point)["environmentSteps"] for point in points]
    assert tracker.steps[0] == 10
    assert tracker.ended == end
