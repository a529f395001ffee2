"""What is known of a run at one moment: all that the view and the plain lines are made from."""

from __future__ import annotations

from dataclasses import dataclass, field
from signal import SIGINT, Signals

from rltraining_api.job import RLTrainingJob
from rltraining_api.status import Status
from rltraining_operator.trouble import WAITING

CONTAINER_CREATING = "ContainerCreating"
"""What kubectl calls a pod whose process does not run yet."""


@dataclass(frozen=True)
class PodRow:
    """How a pod is."""

    name: str
    phase: str
    ready: bool
    restarts: int
    why: str = ""
    """Why it is not ready, or why it ended."""


@dataclass(frozen=True)
class EventRow:
    """A line of the job's story."""

    seconds: float
    """Since the run was started."""
    type: str
    """`Normal` or `Warning`."""
    reason: str
    message: str
    count: int = 1
    """How often it came."""


@dataclass(frozen=True)
class Snapshot:
    """A run at one moment."""

    job: RLTrainingJob
    elapsed: float
    """Seconds since the run was started."""
    pods: tuple[PodRow, ...] = ()
    events: tuple[EventRow, ...] = ()
    """Oldest first."""
    eta_seconds: float | None = None
    notice: str = ""
    """What the run is busy with besides training: `Stopping: …`."""
    signal: int | None = None
    """The signal that has asked a local run to stop."""

    @property
    def status(self) -> Status:
        return self.job.status

    @property
    def stopped_by(self) -> str:
        """`Ctrl-C` or the name of another signal, unless the job was over before; empty for others."""
        if self.signal is None or self.status.completion_time is not None:
            return ""
        return "Ctrl-C" if self.signal == SIGINT else Signals(self.signal).name

    @property
    def phase(self) -> str:
        """The job's; `Stopping` and then `Stopped` of a local run that was asked to: nobody has suspended a job there."""
        if not self.stopped_by:
            return self.status.phase
        return "Stopping" if self.pods else "Stopped"

    @property
    def message(self) -> str:
        """Why the phase is what it is. At a start nothing is wrong with pods; what takes its time is said instead."""
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
    """Guesses how long a run still takes, from how `progress.percent` has grown since this run was started."""

    _first: tuple[float, float] | None = field(default=None)
    """Time and per cent of the first measurement: a resumed run does not begin at 0."""

    def update(self, now: float, percent: float | None) -> float | None:
        """Seconds that remain; None while nothing can be said."""
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
