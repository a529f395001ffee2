"""The events of a local run, in memory and in its folder."""

from __future__ import annotations

import json
from pathlib import Path

from rltraining_operator.cluster import Event
from rltraining_operator.local.events import EVENTS_FILE, EventLog, read_events


def test_events_are_stored_in_a_file_and_a_failed_write_is_ignored(tmp_path: Path) -> None:
    killed, done = Event("Warning", "Disrupted", "killed\nby hand"), Event("Normal", "Completed", "enough")
    log = EventLog(tmp_path / EVENTS_FILE)
    for event in (killed, killed, done, killed):
        log.record(event)
    assert [(stored.event, stored.count) for stored in log] == [(killed, 3), (done, 1)]
    found = read_events(tmp_path)
    assert [(stored.event, stored.count) for stored in found] == [(killed, 2), (done, 1), (killed, 1)]
    assert found[0].first <= found[0].last <= found[1].first

    nowhere = EventLog(tmp_path / "no" / "such" / EVENTS_FILE)
    nowhere.record(done)
    assert [stored.event for stored in nowhere] == [done]
    assert read_events(tmp_path / "no") == ()


def test_lines_that_a_stranger_wrote_are_events_of_the_same_kind_or_none(tmp_path: Path) -> None:
    times = ("2026-01-01T00:00:00", "2026-01-01T00:00:00+00:00", "0001-01-01T00:00:00+14:00", "never", 5)
    lines = [{"time": time, "type": {}, "reason": 1e300, "message": None} for time in times]
    content = "\n".join([*map(json.dumps, lines), "[" * 100_000, "[]", "null"])
    (tmp_path / EVENTS_FILE).write_text(content)
    assert {event.event for event in read_events(tmp_path)} == {Event("Normal", "1e+300", "None")}
    assert all(event.last.tzinfo is not None for event in read_events(tmp_path))
