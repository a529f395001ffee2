"""Reads the events of a run, of a local cluster or of an API server."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rltraining_operator.local.events import StoredEvent
from rltraining_operator.observe.mounts import event_time

from rltraining.snapshot import EventRow

SUSPENDED = "Suspended"
"""Reason of the event that follows a signal. It is hidden, because it mentions a field that the
user has not set."""


@dataclass(frozen=True)
class RunEvent:
    """An event of the run."""

    time: datetime
    """When it last occurred."""
    type: str
    """`Normal`, `Warning` or `Condition`."""
    reason: str
    message: str
    count: int = 1
    """How often it occurred."""


def from_log(log: Iterable[StoredEvent]) -> list[RunEvent]:
    """Returns the events of a local cluster."""
    return [
        RunEvent(stored.last, stored.event.type, stored.event.reason, stored.event.message, stored.count)
        for stored in log
        if stored.event.reason != SUSPENDED
    ]


def from_api(objects: Iterable[dict[str, Any]], uid: str | None) -> list[RunEvent]:
    """Returns the Events of the job with this uid."""
    return [
        RunEvent(
            time=when,
            type=str(event.get("type") or "Normal"),
            reason=str(event.get("reason") or ""),
            message=str(event.get("message") or ""),
            count=int(event.get("count") or (event.get("series") or {}).get("count") or 1),
        )
        for event in objects
        if event["involvedObject"].get("uid") == uid and (when := event_time(event)) is not None
    ]


def rows(events: Iterable[RunEvent], began: datetime) -> tuple[EventRow, ...]:
    """Returns the events, oldest first, including events from before the run was resumed."""
    return tuple(
        EventRow(max(0.0, (it.time - began).total_seconds()), it.type, it.reason, it.message, it.count)
        for it in sorted(events, key=lambda event: event.time)
    )
