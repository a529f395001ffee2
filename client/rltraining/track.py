"""Creates snapshots from a job and its pods, in the terms of kubectl."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rltraining_api.job import RLTrainingJob
from rltraining_operator.failures.pod_failure import summarize_termination_message
from rltraining_operator.observe.observed import Pod

from rltraining.snapshot import Eta, EventRow, PodRow, Snapshot


class Track:
    """Creates consecutive snapshots, from which it estimates the remaining time."""

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
        """Returns the state of the job, `elapsed` seconds after its start. `signal`: the signal
        that requested a stop."""
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
    """Returns a pod as in `kubectl get pods`, with the reason why it is not ready."""
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
    failure, scheduled = pod.newest_failure, pod.conditions.get("PodScheduled", {})
    ended = ""
    if failure is not None:
        ended = f"exit code {failure.exit_code}"
        if message := summarize_termination_message(failure.message):
            ended += f": {message}"
    unscheduled = scheduled.get("message") if scheduled.get("status") == "False" else None
    return "; ".join(filter(None, [pod.message or pod.reason, unscheduled, *waiting, ended]))
