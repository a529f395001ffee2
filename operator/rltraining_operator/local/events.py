"""The story of a job, as a local cluster keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from rltraining_operator.cluster import Event


@dataclass
class StoredEvent:
    """An event, and how often it came."""

    event: Event
    first: datetime
    last: datetime
    count: int = 1


class EventLog(list[StoredEvent]):
    """Events, oldest first; equal ones are counted, not repeated."""

    def tell(self, event: Event) -> None:
        """Add an event that happens now."""
        now = datetime.now(UTC)
        for stored in self:
            if stored.event == event:
                stored.count, stored.last = stored.count + 1, now
                return
        self.append(StoredEvent(event, now, now))
