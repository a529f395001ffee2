"""Points reach a tracker in another process. If it fails, hangs or dies, the learner does not notice."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import recording_tracker
from recording_tracker import DIE, ENDED, HANG, LOGGED, REFUSE
from rltraining_api.tracking import Tracking
from rltraining_trainer.tracking.messages import Opening, Point
from rltraining_trainer.tracking.tracker import MAX_BATCH, MAX_QUEUED, Tracker

SECONDS = 60.0
"""A wait that takes longer hangs, however busy the machine is."""


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Tracker]:
    monkeypatch.setenv("PYTHONPATH", str(Path(recording_tracker.__file__).parent))
    tracking = Tracking.model_validate({"wandb": {"project": "p"}})
    opening = Opening(
        kind="wandb", tracking=tracking, run_id="uid", name="demo", folder=str(tmp_path), config={}
    )
    return lambda: Tracker(opening, module="recording_tracker", retry_seconds=0.05)


def write(tracker: Tracker, *steps: int) -> None:
    for step in steps:
        tracker.write(Point(step=step, time=0.0, values={"updates": 1.0}))


def logged(folder: Path) -> list[int]:
    path = folder / LOGGED
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_all_points_and_the_end_are_sent_in_order(start: Callable[[], Tracker], tmp_path: Path) -> None:
    tracker = start()
    write(tracker, *range(3 * MAX_BATCH))
    tracker.end("finished")
    tracker.join(SECONDS)
    assert logged(tmp_path) == list(range(3 * MAX_BATCH))
    assert (tmp_path / ENDED).read_text() == "finished"
    assert (tracker.failure, tracker.dropped) == ("", 0)


def test_a_run_that_ends_before_its_first_point_is_not_tracked(
    start: Callable[[], Tracker], tmp_path: Path
) -> None:
    tracker = start()
    tracker.end("failed")
    tracker.join(SECONDS)
    assert not (tmp_path / ENDED).exists()


def test_points_are_sent_once_the_server_is_back(
    start: Callable[[], Tracker], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / REFUSE).touch()
    tracker = start()
    write(tracker, 1, 2)
    until(lambda: tracker.failure)
    assert tracker.failure == (
        "spec.tracking.wandb: points cannot be sent: ConnectionError: the server is down; training continues, and "
        "sending is tried again every 0.05 s"
    )
    (tmp_path / REFUSE).unlink()
    until(lambda: logged(tmp_path) == [1, 2])
    until(lambda: not tracker.failure)
    tracker.end("finished")
    tracker.join(SECONDS)
    assert [record.levelname for record in caplog.records].count("WARNING") == 1


def test_points_that_a_server_never_takes_are_counted(start: Callable[[], Tracker], tmp_path: Path) -> None:
    (tmp_path / REFUSE).touch()
    tracker = start()
    write(tracker, 1, 2, 3)
    until(lambda: tracker.failure)
    tracker.end("failed")
    tracker.join(SECONDS)
    assert tracker.dropped == 3
    assert tracker.failure == (
        "spec.tracking.wandb: 3 points were not sent; progress.jsonl has them; the last error was: ConnectionError: the server "
        "is down"
    )


def test_a_process_that_dies_is_replaced(start: Callable[[], Tracker], tmp_path: Path) -> None:
    (tmp_path / DIE).touch()
    tracker = start()
    write(tracker, 1)
    until(lambda: logged(tmp_path) == [1])
    tracker.end("finished")
    tracker.join(SECONDS)
    assert (tmp_path / ENDED).read_text() == "finished"


def test_a_tracker_that_hangs_neither_blocks_nor_grows(
    start: Callable[[], Tracker], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / HANG).touch()
    tracker = start()
    write(tracker, 0)
    until(lambda: (tmp_path / HANG).read_text())
    write(tracker, *range(1, MAX_QUEUED + 11))
    assert tracker.dropped == 10
    tracker.end("finished")
    tracker.join(0.0)
    until(lambda: tracker.dropped == MAX_QUEUED + 11)
    assert "the end of the run was not sent in time" in caplog.text
    assert tracker.failure.startswith("spec.tracking.wandb: the end of the run was not sent in time")
