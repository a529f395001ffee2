"""MetricsWriter: TensorBoard and readers of JSON lines can read its files, also after interruptions."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rltraining_trainer.metrics import MetricsWriter
from rltraining_trainer.metrics.event_file import _crc32c, _event, _field
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event, SessionLog


def write(output: Path, run_id: str, resume_step: int | None, *points: tuple[int, dict]) -> MetricsWriter:
    writer = MetricsWriter(str(output), run_id=run_id, resume_step=resume_step)
    for step, values in points:
        writer.write(step, values, 1_700_000_000.5 + step)
    writer.close(timeout=60)
    return writer


def lines(output: Path) -> list[dict]:
    return [json.loads(line) for line in (output / "progress.jsonl").read_text().splitlines()]


def curve(output: Path, tag: str) -> list[tuple[int, float]]:
    events = EventAccumulator(str(output / "tensorboard"), purge_orphaned_data=True)
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(tag)]


@pytest.mark.parametrize(
    ("data", "crc"),  # RFC 3720, appendix B.4
    [
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
    ],
)
def test_crc32c(data: bytes, crc: int) -> None:
    assert _crc32c(data) == crc


@given(st.floats(allow_nan=False), st.integers(0, 2**62), st.text(max_size=40))
def test_events_are_what_protobuf_reads(wall_time: float, step: int, tag: str) -> None:
    value = _field(1, 2, tag.encode("utf-8", "replace")) + _field(2, 5, 0.5)
    event = Event.FromString(_event(wall_time, step, _field(5, 2, _field(1, 2, value))))
    assert (event.wall_time, event.step) == (wall_time, step)
    assert event.summary.value[0].tag == tag.encode("utf-8", "replace").decode()
    assert event.summary.value[0].simple_value == 0.5
    start = Event.FromString(_event(wall_time, step, _field(7, 2, _field(1, 0, 1))))
    assert start.session_log.status == SessionLog.START


def test_points_reach_both_files(tmp_path: Path) -> None:
    writer = write(
        tmp_path,
        "a",
        None,
        (0, {"meanReturn": None, "loss": 1.5}),
        (3000, {"meanReturn": 21.5, "loss": math.nan}),
    )
    assert writer.failure is None
    assert lines(tmp_path) == [
        {"environmentSteps": 0, "time": 1_700_000_000.5, "run": "a", "meanReturn": None, "loss": 1.5},
        {"environmentSteps": 3000, "time": 1_700_003_000.5, "run": "a", "meanReturn": 21.5, "loss": None},
    ]
    assert curve(tmp_path, "meanReturn") == [(3000, 21.5)]
    (first, second) = curve(tmp_path, "loss")
    assert first == (0, 1.5)
    assert math.isnan(second[1])


def test_after_a_restart_the_curve_goes_on_from_the_checkpoint(tmp_path: Path) -> None:
    """Holds also for a later update at the same step, as with several updates from one rollout."""
    write(tmp_path, "a", None, *((step, {"loss": 1.0}) for step in (10, 20, 30, 40)))
    with (tmp_path / "progress.jsonl").open("a") as file:
        file.write('{"environmentSteps": 15, "lo')  # it died while writing
    write(tmp_path, "b", 30, (30, {"loss": 2.0}), (35, {"loss": 2.0}))
    expected = [(10, 1.0), (20, 1.0), (30, 2.0), (35, 2.0)]
    assert [(point["environmentSteps"], point["loss"]) for point in lines(tmp_path)] == expected
    assert [point["run"] for point in lines(tmp_path)] == ["a", "a", "b", "b"]
    assert curve(tmp_path, "loss") == expected


def test_a_restart_without_a_checkpoint_begins_anew(tmp_path: Path) -> None:
    write(tmp_path, "a", None, (0, {"loss": 1.0}), (10, {"loss": 1.0}))
    write(tmp_path, "b", None)
    assert lines(tmp_path) == [], "a reader sees at once that the old points are void"
    write(tmp_path, "c", None, (0, {"loss": 3.0}))
    assert [point["run"] for point in lines(tmp_path)] == ["c"]
    assert curve(tmp_path, "loss") == [(0, 3.0)]


def test_a_full_disk_costs_points_and_is_told_once(
    small_disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    writer = MetricsWriter(str(small_disk), run_id="a", resume_step=None)
    writer.write(1, {"loss": 1.0}, 0.0)
    while not any(b"loss" in file.read_bytes() for file in small_disk.glob("tensorboard/*")):
        time.sleep(0.001)  # its thread has written both files, before the disk is full
    ballast = small_disk / "ballast"
    fill(ballast)
    os.truncate(ballast, ballast.stat().st_size - 16384)  # room for some points
    for step in range(2, 400):
        writer.write(step, {"loss": 2.0, "x" * 100: 3.0}, 0.0)
    writer.close(60)
    assert writer.failure == (
        f"metrics cannot be written to {small_disk}: the disk is full; points are dropped, training continues"
    )
    assert caplog.messages == [writer.failure]

    ballast.unlink()
    whole = lines(small_disk)  # every line parses: nothing is torn
    assert len(whole) < 399
    last = whole[-1]["environmentSteps"]
    assert write(small_disk, "b", last, (1000, {"loss": 4.0})).failure is None
    assert lines(small_disk)[-1]["loss"] == 4.0
    assert curve(small_disk, "loss")[-1] == (1000, 4.0)


def test_it_goes_on_when_there_is_room_again(
    tmp_path: Path, file_size_limit: Callable[[int], AbstractContextManager[None]]
) -> None:
    write(tmp_path, "a", None, (1, {"loss": 1.0}))
    writer = MetricsWriter(str(tmp_path), run_id="b", resume_step=2)
    with file_size_limit((tmp_path / "progress.jsonl").stat().st_size + 10):
        writer.write(2, {"loss": 2.0}, 0.0)
        while writer.failure is None:
            time.sleep(0.001)
        assert "the disk is full" in writer.failure
    writer.write(3, {"loss": 3.0}, 0.0)
    writer.close(60)
    assert writer.failure is None
    assert [point["environmentSteps"] for point in lines(tmp_path)] == [1, 3]
    assert curve(tmp_path, "loss") == [(1, 1.0), (3, 3.0)]


def test_where_the_run_has_ended_is_tried_again(
    tmp_path: Path,
    file_size_limit: Callable[[int], AbstractContextManager[None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write(tmp_path, "a", None, (1, {"loss": 1.0}))
    writer = MetricsWriter(str(tmp_path), run_id="b", resume_step=2)
    tried: SimpleQueue[int] = SimpleQueue()
    attempt = writer._attempt

    def told(action: Callable[..., None], *arguments: Any) -> None:
        attempt(action, *arguments)
        if arguments:
            tried.put(arguments[0][0])

    monkeypatch.setattr(writer, "_attempt", told)
    with file_size_limit((tmp_path / "progress.jsonl").stat().st_size + 10):
        writer.write(2, {"loss": 2.0}, 0.0)
        writer.write(3, {"loss": 3.0}, 0.0)
        assert [tried.get(timeout=60), tried.get(timeout=60)] == [2, 3]
        assert writer.failure is not None
    writer.close(60)
    assert writer.failure is None
    assert [point["environmentSteps"] for point in lines(tmp_path)] == [1, 3]
    assert curve(tmp_path, "loss") == [(1, 1.0), (3, 3.0)]


def test_what_only_one_of_the_two_files_took_is_there_once(tmp_path: Path) -> None:
    (tmp_path / "tensorboard").touch()
    writer = write(tmp_path, "a", None, (1, {"loss": 1.0}), (2, {"loss": 2.0}))
    assert "points are dropped" in writer.failure
    assert [point["environmentSteps"] for point in lines(tmp_path)] == [1, 2]


def test_a_place_that_cannot_be_written_to_does_not_raise(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    writer = write(tmp_path / "file", "a", None, (1, {"loss": 1.0}))
    assert "not a directory; points are dropped" in writer.failure


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        while True:
            try:
                file.write(bytes(4096))
            except OSError:
                return


def test_the_result_of_an_evaluation_is_shown_at_the_step_of_its_policy(tmp_path: Path) -> None:
    result = {"evaluation/environmentSteps": 15, "evaluation/return": 7.5}
    write(tmp_path, "a", None, (10, {"loss": 1.0}), (30, {"loss": 2.0, **result}), (40, {"loss": 3.0}))
    assert curve(tmp_path, "evaluation/return") == [(15, 7.5)]
    assert curve(tmp_path, "loss") == [(10, 1.0), (30, 2.0), (40, 3.0)]
    assert [line.get("evaluation/return") for line in lines(tmp_path)] == [None, 7.5, None]
