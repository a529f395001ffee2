"""Writes metrics to files in the background."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from rltraining_trainer.errors import storage_problem
from rltraining_trainer.metrics.event_file import EventFile
from rltraining_trainer.metrics.progress_file import ProgressFile

_LOG = logging.getLogger(__name__)
_MAX_QUEUED = 1000
"""Maximum number of points that are queued for a slow disk. Further points are dropped."""

_EVALUATION, _EVALUATED_STEP = "evaluation/", "evaluation/environmentSteps"
"""Prefix of evaluation results in a point, and the tag of the evaluated policy's step."""

_Point = tuple[int, Mapping[str, float | None], float]


def by_step(step: int, values: Mapping[str, float]) -> Iterator[tuple[int, dict[str, float]]]:
    """Yields the values of a point by their step. Evaluation results belong to the step of the evaluated policy."""
    evaluated = {tag: value for tag, value in values.items() if tag.startswith(_EVALUATION)}
    if _EVALUATED_STEP in evaluated:
        yield int(evaluated[_EVALUATED_STEP]), evaluated
    yield step, {tag: value for tag, value in values.items() if tag not in evaluated}


class MetricsWriter:
    """Writes each point to ``<output>/tensorboard/`` and to ``<output>/progress.jsonl``."""

    failure: str | None = None
    """Why points are dropped, in one sentence. None if the last point was written."""

    def __init__(self, output_dir: str, *, run_id: str, resume_step: int | None) -> None:
        """Starts the thread.

        Args:
            output_dir: Directory of the files.
            run_id: Distinguishes restarts of the learner.
            resume_step: Step at which the run resumes. None: from the beginning. Earlier points at
                this and later steps are cut from progress.jsonl and discarded by TensorBoard.
        """
        self._output = output = Path(output_dir)
        self._run_id = run_id
        first = 0 if resume_step is None else resume_step
        self._progress = ProgressFile(output / "progress.jsonl", first_step=first)
        self._events = EventFile(output / "tensorboard", name=run_id, wall_time=time.time(), first_step=first)
        self._points: SimpleQueue[_Point | None] = SimpleQueue()
        self._in_progress_file: _Point | None = None
        """The newest point in progress.jsonl, which a retry must not repeat."""
        self._thread = threading.Thread(target=self._run, name="metrics-writer", daemon=True)
        self._thread.start()

    def write(self, step: int, values: Mapping[str, float | None], wall_time: float) -> None:
        """Queues a point at ``step`` environment steps and ``wall_time`` (Unix). Never blocks or
        raises.

        ``values`` must not be modified afterwards.
        """
        if self._points.qsize() < _MAX_QUEUED:
            self._points.put((step, values, wall_time))

    def close(self, timeout: float = 2.0) -> None:
        """Writes the queued points, for at most ``timeout`` seconds."""
        self._points.put(None)
        self._thread.join(timeout)

    def _run(self) -> None:
        with closing(self._progress), closing(self._events):
            self._attempt(self._progress.cut)
            last: _Point | None = None
            while (point := self._points.get()) is not None:
                self._attempt(self._append, point)
                last = point
            # Retry the final point of the run.
            if self.failure is not None and last is not None:
                self._attempt(self._append, last)

    def _append(self, point: _Point) -> None:
        step, values, wall_time = point
        if point is not self._in_progress_file:
            self._progress.append(step, {"time": wall_time, "run": self._run_id, **values})
            self._in_progress_file = point
        present = {tag: float(value) for tag, value in values.items() if value is not None}
        for at, part in by_step(step, present):
            self._events.append(at, part, wall_time)

    def _attempt(self, action: Callable[..., None], *arguments: Any) -> None:
        try:
            action(*arguments)
        except Exception as error:  # must not end the run
            first, reason = self.failure is None, storage_problem(error)
            self.failure = f"metrics cannot be written to {self._output}: {reason}; points are dropped, training continues"
            if first:
                _LOG.warning("%s", self.failure)
        else:
            self.failure = None
