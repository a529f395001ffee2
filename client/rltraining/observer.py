"""Creates snapshots from a local cluster."""

from __future__ import annotations

from datetime import datetime

from rltraining_operator.cluster import Key
from rltraining_operator.local import LocalCluster

from rltraining.run_events import from_log, rows
from rltraining.snapshot import Eta, Snapshot, pod_row

STOPPING = (
    "Stopping: the learner writes a last checkpoint. Press Ctrl-C again to end all processes immediately."
)


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
        events = rows(from_log(self._cluster.events), self._started)
        return Snapshot(job, elapsed, tuple(map(pod_row, pods)), events, eta, notice, signal)
