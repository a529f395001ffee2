"""Creates snapshots from a local cluster."""

from __future__ import annotations

from datetime import datetime

from rltraining_operator.cluster import Key
from rltraining_operator.local import LocalCluster

from rltraining.snapshot import Eta, EventRow, Snapshot, pod_row

STOPPING = (
    "Stopping: the learner writes a last checkpoint. Press Ctrl-C again to end all processes immediately."
)
SUSPENDED = "Suspended"
"""Reason of the event that follows a signal. It is hidden, because it mentions a field that the
user has not set."""


class Observer:
    """Creates snapshots of a job."""

    def __init__(self, cluster: LocalCluster, key: Key, started: datetime) -> None:
        self._cluster = cluster
        self._key = key
        self._started = started
        self._eta = Eta()

    def snapshot(self, now: datetime, signal: int | None = None) -> Snapshot:
        """Returns the current state of the job. `signal`: the signal that requested a stop."""
        elapsed = (now - self._started).total_seconds()
        pods = self._cluster.pods(self._key)
        notice = STOPPING if signal is not None and pods else ""
        job = self._cluster.job(self._key)
        eta = self._eta.update(elapsed, job.status.progress.percent)
        rows = tuple(map(pod_row, pods))
        return Snapshot(job, elapsed, rows, self._events(), eta, notice, signal)

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
            if stored.event.reason != SUSPENDED
        )
