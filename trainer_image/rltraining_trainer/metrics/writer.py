"""Metrics to files, in the background: training never waits for a disk and never ends because of one."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from rltraining_trainer.metrics.event_file import EventFile
from rltraining_trainer.metrics.progress_file import ProgressFile
from rltraining_trainer.storage_problem import storage_problem

_LOG = logging.getLogger(__name__)
_MOST_WAITING = 1000
"""Points that wait for a disk that hangs; more are dropped."""

EVALUATION, EVALUATED_STEP = "evaluation/", "evaluation/environmentSteps"
"""Prefix of evaluation results in a point, and the tag of the evaluated policy's step."""

_Point = tuple[int, Mapping[str, float | None], float]


class MetricsWriter:
    """Writes each point to ``<output>/tensorboard/`` and to ``<output>/progress.jsonl``."""

    failure: str | None = None
    """Why points are being dropped, in one sentence; None when the last one was written."""

    def __init__(self, output_dir: str, *, run_id: str, resume_step: int | None) -> None:
        """``run_id`` tells the incarnations of a learner apart. What an earlier one wrote from
        ``resume_step`` on (everything, for None) is void: cut from progress.jsonl, purged by TensorBoard. At that step, too:
        several updates may be of the same number of steps."""
        self._output = output = Path(output_dir)
        self._run_id = run_id
        first = 0 if resume_step is None else resume_step
        self._progress = ProgressFile(output / "progress.jsonl", first_step=first)
        self._events = EventFile(output / "tensorboard", name=run_id, wall_time=time.time(), first_step=first)
        self._points: SimpleQueue[_Point | None] = SimpleQueue()
        self._in_progress_file: _Point | None = None
        """The newest point there, which the event file may have refused: tried again, it is not written there twice."""
        self._thread = threading.Thread(target=self._run, name="metrics-writer", daemon=True)
        self._thread.start()

    def write(self, step: int, values: Mapping[str, float | None], wall_time: float) -> None:
        """A point at ``step`` environment steps and ``wall_time`` (Unix). Never blocks, never raises.

        ``values`` must not change afterwards.
        """
        if self._points.qsize() < _MOST_WAITING:
            self._points.put((step, values, wall_time))

    def close(self, timeout: float = 2.0) -> None:
        """Write what waits, for at most ``timeout`` seconds."""
        self._points.put(None)
        self._thread.join(timeout)

    def _run(self) -> None:
        with closing(self._progress), closing(self._events):
            self._attempt(self._progress.cut)
            last: _Point | None = None
            while (point := self._points.get()) is not None:
                self._attempt(self._append, point)
                last = point
            if self.failure is not None and last is not None:  # where the run has ended is worth another try
                self._attempt(self._append, last)

    def _append(self, point: _Point) -> None:
        step, values, wall_time = point
        if point is not self._in_progress_file:
            self._progress.append(step, {"time": wall_time, "run": self._run_id, **values})
            self._in_progress_file = point
        present = {tag: float(value) for tag, value in values.items() if value is not None}
        evaluated = {tag: present.pop(tag) for tag in list(present) if tag.startswith(EVALUATION)}
        if evaluated:  # written at the step of the evaluated policy, not at the current step
            self._events.append(int(evaluated[EVALUATED_STEP]), evaluated, wall_time)
        self._events.append(step, present, wall_time)

    def _attempt(self, action: Callable[..., None], *arguments: Any) -> None:
        try:
            action(*arguments)
        except Exception as error:  # whatever it is, it is not worth a training run
            first, reason = self.failure is None, storage_problem(error)
            self.failure = (
                f"metrics cannot be written to {self._output}: {reason}; points are dropped, training goes on"
            )
            if first:
                _LOG.warning("%s", self.failure)
        else:
            self.failure = None
