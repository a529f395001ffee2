"""From a job and its pods to snapshots: what the view needs, in the words that people know from kubectl."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rltraining_api.job import RLTrainingJob
from rltraining_operator.failures import last_words
from rltraining_operator.observed import Pod

from rltraining.snapshot import Eta, EventRow, PodRow, Snapshot


class Track:
    """Remembers what only the sequence of snapshots tells: the time left."""

    def __init__(self) -> None:
        self._eta = Eta()

    def snapshot(
        self,
        job: RLTrainingJob,
        elapsed: float,
        pods: Iterable[Pod],
        events: tuple[EventRow, ...],
        notice: str = "",
        signal: int | None = None,
    ) -> Snapshot:
        """The job as it is, `elapsed` seconds after it was started. `signal`: has asked a local run to stop."""
        return Snapshot(
            job=job,
            elapsed=elapsed,
            pods=tuple(map(pod_row, pods)),
            events=events,
            eta_seconds=self._eta.update(elapsed, job.status.progress.percent),
            notice=notice,
            signal=signal,
        )


def pod_row(pod: Pod) -> PodRow:
    """A pod as `kubectl get pods` shows it, and why it is not ready."""
    waiting = [container.waiting for container in pod.containers if container.waiting]
    phase = pod.phase
    if pod.deleting:
        phase = "Terminating"
    elif waiting:
        phase = waiting[0].get("reason") or phase
    restarts = sum(container.restarts for container in pod.containers)
    why = "" if pod.ready else _why(pod, [wait.get("message") for wait in waiting])
    return PodRow(pod.name, phase, pod.ready, restarts, why)


def _why(pod: Pod, waiting: Sequence[str | None]) -> str:
    death, scheduled = pod.newest_death, pod.conditions.get("PodScheduled", {})
    ended = ""
    if death is not None:
        ended = f"exit code {death.exit_code}"
        if words := last_words(death.message):
            ended += f": {words}"
    unscheduled = scheduled.get("message") if scheduled.get("status") == "False" else None
    return "; ".join(filter(None, [pod.message or pod.reason, unscheduled, *waiting, ended]))
