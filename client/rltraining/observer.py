"""From a local cluster to snapshots."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from rltraining_operator.cluster import Key
from rltraining_operator.local import LocalCluster

from rltraining.snapshot import EventRow, Point, Snapshot
from rltraining.track import Track


class Observer:
    """Makes snapshots of a job."""

    def __init__(
        self, cluster: LocalCluster, key: Key, started: datetime, curve: Iterable[Point] = ()
    ) -> None:
        """`curve`: what was learned before this run was started."""
        self._cluster = cluster
        self._key = key
        self._started = started
        self._track = Track(curve)

    def snapshot(self, now: datetime, notice: str = "") -> Snapshot:
        """The job as it is."""
        elapsed = (now - self._started).total_seconds()
        pods = self._cluster.pods(self._key)
        return self._track.snapshot(self._cluster.job(self._key), elapsed, pods, self._events(), notice)

    def _events(self) -> tuple[EventRow, ...]:
        newest_last = sorted(self._cluster.events, key=lambda stored: stored.last)
        return tuple(
            EventRow(
                seconds=max(0.0, (stored.last - self._started).total_seconds()),
                type=stored.event.type,
                reason=stored.event.reason,
                message=stored.event.message,
                count=stored.count,
            )
            for stored in newest_last
        )
