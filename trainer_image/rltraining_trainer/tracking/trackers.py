"""The trackers of a run: the learner's side of `spec.tracking`."""

from __future__ import annotations

import importlib.util
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rltraining_api.contract import Warning
from rltraining_api.job import RLTrainingJob
from rltraining_api.names import ROLES

from rltraining_trainer.errors import BadConfiguration, install_remedy
from rltraining_trainer.metrics.writer import by_step
from rltraining_trainer.tracking.messages import End, Kind, Opening, Point
from rltraining_trainer.tracking.tracker import Tracker

KINDS: tuple[Kind, ...] = ("wandb", "mlflow")
CLOSE_SECONDS, KILLED_SECONDS = 20.0, 5.0
"""How long the end of a run waits for the trackers, and how long a process that was asked to end."""


class Trackers:
    """Sends each point to all trackers of `spec.tracking`."""

    def __init__(self, trackers: Sequence[Tracker] = ()) -> None:
        self._trackers = trackers

    def write(self, step: int, values: Mapping[str, float | None], wall_time: float) -> None:
        """Queues a point at ``step`` environment steps and ``wall_time`` (Unix). Never blocks or
        raises."""
        for point in _points(step, values, wall_time) if self._trackers else ():
            for tracker in self._trackers:
                tracker.write(point)

    def warnings(self) -> Iterator[Warning]:
        """Yields warnings for the job's status. Thread-safe."""
        for tracker in self._trackers:
            if failure := tracker.failure:
                yield Warning(reason="TrackingFailed", message=failure)

    def close(self, end: End) -> tuple[Warning, ...]:
        """Sends the queued points and ends the tracked runs, for a bounded time. Returns warnings of unsent points."""
        deadline = time.monotonic() + (KILLED_SECONDS if end == "killed" else CLOSE_SECONDS)
        for tracker in self._trackers:
            tracker.end(end)
        for tracker in self._trackers:
            tracker.join(deadline - time.monotonic())
        return tuple(self.warnings())


def start_trackers(job: RLTrainingJob, folder: Path) -> Trackers:
    """Starts the trackers of `spec.tracking`, which may write files to ``folder``.

    Raises BadConfiguration if a package or the tracking server's address is missing.
    """
    tracking = job.spec.tracking
    if tracking is None:
        return Trackers()
    kinds = [kind for kind in KINDS if getattr(tracking, kind) is not None]
    # Check what a restart could not fix, before training starts.
    for kind in kinds:
        if not _is_installed(kind):
            raise BadConfiguration(
                f"spec.tracking.{kind} needs the package {kind}, which is not installed: {install_remedy(kind)}"
            )
    if tracking.mlflow and not (tracking.mlflow.tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")):
        raise BadConfiguration(
            "spec.tracking.mlflow needs a server: set trackingUri, or the environment variable MLFLOW_TRACKING_URI"
        )
    # Start a process for each. The uid makes a restarted learner continue its tracked run.
    openings = (
        Opening(
            kind=kind,
            tracking=tracking,
            run_id=job.metadata.uid or job.metadata.name,
            name=job.metadata.name,
            folder=str(folder),
            config=hyperparameters(job),
        )
        for kind in kinds
    )
    return Trackers([Tracker(opening) for opening in openings])


def hyperparameters(job: RLTrainingJob) -> dict[str, Any]:
    """Returns the resolved spec without the pod templates, which may contain passwords."""
    spec = job.spec.to_dict()
    del spec["tracking"]
    for role in ROLES:
        spec.get(role, {}).pop("template", None)
    return spec


def _is_installed(package: str) -> bool:
    """Returns whether a package is installed. A folder of the same name, such as W&B's files, does not count."""
    found = importlib.util.find_spec(package)
    return found is not None and found.origin is not None


def _points(step: int, values: Mapping[str, float | None], wall_time: float) -> Iterator[Point]:
    """Yields the finite values by their step."""
    finite = {
        name: float(value) for name, value in values.items() if value is not None and math.isfinite(value)
    }
    for at, part in by_step(step, finite):
        yield Point(step=at, time=wall_time, values=part)
