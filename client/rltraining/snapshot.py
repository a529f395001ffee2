"""Describes the state of a run at one time, as input of the view and the plain lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from signal import SIGINT, Signals

from rltraining_api.job import RLTrainingJob
from rltraining_api.status import Status
from rltraining_operator.failures.pod_failure import summarize_termination_message
from rltraining_operator.observe.observed import Pod
from rltraining_operator.status.blocked import WAITING

CONTAINER_CREATING = "ContainerCreating"
"""kubectl's phase of a pod whose process has not started."""


@dataclass(frozen=True)
class PodRow:
    """The state of a pod."""

    name: str
    phase: str
    ready: bool
    restarts: int
    why: str = ""
    """Why it is not ready, or why it ended."""


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


@dataclass(frozen=True)
class EventRow:
    """An event of the job."""

    seconds: float
    """Since the run was started."""
    type: str
    """`Normal` or `Warning`."""
    reason: str
    message: str
    count: int = 1
    """How often the event occurred."""


@dataclass(frozen=True)
class Snapshot:
    """The state of a run at one time."""

    job: RLTrainingJob
    elapsed: float
    """Seconds since the run was started."""
    pods: tuple[PodRow, ...] = ()
    events: tuple[EventRow, ...] = ()
    """Oldest first."""
    eta_seconds: float | None = None
    notice: str = ""
    """A message about another activity of the run, such as `Stopping: …`."""
    signal: int | None = None
    """The signal that requested a stop of a local run."""

    @property
    def status(self) -> Status:
        return self.job.status

    @property
    def stopped_by(self) -> str:
        """`Ctrl-C` or the name of another signal, unless the job was over before. Empty without a
        signal."""
        if self.signal is None or self.status.completion_time is not None:
            return ""
        return "Ctrl-C" if self.signal == SIGINT else Signals(self.signal).name

    @property
    def phase(self) -> str:
        """The job's phase, or `Stopping` and then `Stopped` for a local run that was stopped. The
        job's phase would be `Suspended`, although the user has not suspended it."""
        if not self.stopped_by:
            return self.status.phase
        return "Stopping" if self.pods else "Stopped"

    @property
    def message(self) -> str:
        """The reason for the phase. While pods start normally, the activity that takes time."""
        if self.stopped_by:
            return f"by {self.stopped_by}"
        loading = self.pods and all(pod.phase == CONTAINER_CREATING and not pod.why for pod in self.pods)
        held_up = any(c.type == "Ready" and c.reason != WAITING for c in self.status.conditions)
        if loading and not held_up and self.status.phase == "Pending":
            return "loading torch and the trainer"
        return self.status.message

    @property
    def title(self) -> str:
        """`cartpole: impala on CartPole-v1`"""
        spec = self.job.spec
        return f"{self.job.metadata.name}: {spec.algorithm.title} on {spec.environment.id}"


@dataclass
class Eta:
    """Estimates the remaining time from the growth of `progress.percent` since this run was
    started."""

    _first: tuple[float, float] | None = field(default=None)
    """Time and per cent of the first measurement, since a resumed run does not start at 0."""

    def update(self, now: float, percent: float | None) -> float | None:
        """Returns the remaining seconds, or None if they cannot be estimated yet."""
        if percent is None:
            return None
        if self._first is None or percent < self._first[1]:
            self._first = (now, percent)
        start, begun = self._first
        if percent >= 100:
            return 0.0
        if percent - begun < 1:
            return None
        return (now - start) * (100 - percent) / (percent - begun)
