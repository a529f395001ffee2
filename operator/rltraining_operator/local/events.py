"""Stores the events of a job in a local cluster."""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from rltraining_api.files import read_regular

from rltraining_operator.cluster import Event

EVENTS_FILE = "events.jsonl"
EVENTS_BYTES_MAX = 64 << 20
"""Maximum size of an events file. `read_events` raises OSError for a larger file."""

log = logging.getLogger(__name__)


@dataclass
class StoredEvent:
    """An event, with its first and last time and the number of times it occurred."""

    event: Event
    first: datetime
    last: datetime
    count: int = 1


class EventLog(list[StoredEvent]):
    """Events, oldest first. Equal events are counted. The file has one line per event, over all
    runs in the directory."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file
        self._last_error = ""

    def record(self, event: Event) -> None:
        """Adds an event with the current time."""
        now = datetime.now(UTC)
        self._write(event, now)
        for stored in self:
            if stored.event == event:
                stored.count, stored.last = stored.count + 1, now
                return
        self.append(StoredEvent(event, now, now))

    def _write(self, event: Event, now: datetime) -> None:
        """Appends an event to the file. A full disk must not stop the training."""
        line = {"time": now.isoformat(), "type": event.type, "reason": event.reason, "message": event.message}
        try:
            with self._file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            if str(error) != self._last_error:
                log.warning("cannot write %s: %s", self._file, error)
            self._last_error = str(error)


def read_events(folder: Path) -> tuple[StoredEvent, ...]:
    """Returns the events of a directory, oldest first. Consecutive equal events are counted.
    Returns none if there is no file. Raises OSError if the file cannot be read."""
    stored: list[StoredEvent] = []
    try:
        content = read_regular(folder / EVENTS_FILE, EVENTS_BYTES_MAX)
    except FileNotFoundError:
        return ()
    lines = content.decode(errors="replace").splitlines()
    for line in lines:
        with suppress(ValueError, KeyError, TypeError, OverflowError, RecursionError):  # torn by a crash
            row = json.loads(line)
            when = datetime.fromisoformat(row["time"]).astimezone(UTC)
            type_: Literal["Normal", "Warning"] = "Warning" if row["type"] == "Warning" else "Normal"
            event = Event(type_, str(row["reason"]), str(row["message"]))
            if stored and stored[-1].event == event:
                stored[-1].count, stored[-1].last = stored[-1].count + 1, when
            else:
                stored.append(StoredEvent(event, when, when))
    return tuple(stored)
