"""Sends points to one tracker from a background thread, through a child process."""

from __future__ import annotations

import logging
import os
import threading
from contextlib import suppress
from queue import SimpleQueue

from pydantic import ValidationError

from rltraining_trainer.process import describe_exit, start_child
from rltraining_trainer.tracking.messages import Answer, Batch, End, Opening, Point

_LOG = logging.getLogger(__name__)

MAX_QUEUED = 2000
"""Maximum number of points that are queued for a slow tracker: about six minutes. Further points
are dropped."""
MAX_BATCH = 40
"""Points per message, with at most 1000 values, MLflow's limit of a request."""
RETRY_SECONDS = 30.0
"""Seconds from a failure to the next attempt. Until then points are queued."""
ANSWER_SECONDS = 180.0
"""Seconds after which a process that does not answer counts as hung and is replaced."""
MODULE = "rltraining_trainer.tracking.process"


class TrackerLost(Exception):
    """The process ended or hung. The message completes "its process ..."."""


class Tracker:
    """Sends points to one tracker. Only `join` blocks, and no method raises."""

    failure = ""
    """One sentence: why points cannot be sent or, after `join`, how many were not sent. Empty after a success."""
    dropped = 0
    """Number of points that were not sent."""

    def __init__(
        self, opening: Opening, *, module: str = MODULE, retry_seconds: float = RETRY_SECONDS
    ) -> None:
        """Starts the thread, which starts the process.

        Args:
            opening: The tracked run.
            module: Program of the process.
            retry_seconds: Seconds from a failure to the next attempt.
        """
        self._opening, self._module, self._retry_seconds = opening, module, retry_seconds
        self._points: SimpleQueue[Point | None] = SimpleQueue()
        self._field = f"spec.tracking.{opening.kind}"
        self._end: End | None = None
        self._error = ""  # of the last attempt
        self._late = False  # the end of the run did not wait for this tracker
        self._closing = threading.Event()
        self._process: _Process | None = None
        self._thread = threading.Thread(target=self._run, name=f"{opening.kind}-tracker", daemon=True)
        self._thread.start()

    def write(self, point: Point) -> None:
        """Queues a point, or drops the point if the queue is full."""
        if self._points.qsize() < MAX_QUEUED:
            self._points.put(point)
        else:
            self.dropped += 1

    def end(self, end: End) -> None:
        """Requests that the queued points are sent and the tracked run is ended."""
        self._end = end
        self._closing.set()
        self._points.put(None)

    def join(self, timeout: float) -> None:
        """Waits for the end of the tracked run for at most ``timeout`` seconds after `end`."""
        self._thread.join(max(0.0, timeout))
        lost: list[str] = []
        if self._thread.is_alive():
            self._late = True
            lost.append("the end of the run was not sent in time")
            if (process := self._process) is not None:
                process.kill()
            self._thread.join(1.0)
        while not self._points.empty():
            self.dropped += self._points.get() is not None
        if self.dropped:
            lost.append(f"{self.dropped} points were not sent; progress.jsonl has them")
        if lost:
            if self._error:
                lost.append(f"the last error was: {self._error}")
            self.failure = f"{self._field}: {'; '.join(lost)}"
            _LOG.warning("%s", self.failure)

    def _run(self) -> None:
        over = False
        while not over:
            # Take the points that are queued. None marks the end.
            items = self._take()
            over = items[-1] is None
            points = tuple(item for item in items if item is not None)
            batch = Batch(points=points, end=self._end if over else None)
            # Send them until they are received. Once the run is over, a failure is final.
            while failure := self._send(batch):
                self._report(failure)
                if self._closing.is_set():
                    self.dropped += len(points)
                    self._kill()
                    return
                self._closing.wait(self._retry_seconds)
            self._report("")
        if self._process is not None:
            self._process.close()

    def _take(self) -> list[Point | None]:
        """Waits for a point. Returns it with the following ones, up to the end or a full batch."""
        items = [self._points.get()]
        while items[-1] is not None and len(items) < MAX_BATCH and not self._points.empty():
            items.append(self._points.get())
        return items

    def _send(self, batch: Batch) -> str:
        """Returns why the batch was not logged, or an empty string."""
        try:
            if self._process is None:
                if not batch.points:
                    return ""  # the run ends before its first point
                self._process = _Process(self._opening, self._module)
            return self._process.ask(batch).failure
        except Exception as error:  # a tracker must not end its thread unseen
            self._kill()
            return f"its process {error}" if isinstance(error, TrackerLost) else str(error)

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.close()
            self._process = None

    def _report(self, failure: str) -> None:
        """Logs the first failure, and the success after it."""
        if not self._late:
            self._error = failure.rstrip(".")
        if failure and not self.failure and not self._late:
            self.failure = (
                f"{self._field}: points cannot be sent: {self._error}; training "
                f"continues, and sending is tried again every {self._retry_seconds:g} s"
            )
            _LOG.warning("%s", self.failure)
        elif not failure and self.failure:
            self.failure = ""
            _LOG.info("%s: points are sent again", self._field)


class _Process:
    """A process that calls the tracker's package, and the socket to it."""

    def __init__(self, opening: Opening, module: str) -> None:
        self._process, self._channel = start_child(module, str(os.getpid()))
        self._channel.settimeout(ANSWER_SECONDS)
        self._lines = self._channel.makefile("rb")
        self._unsent = opening.model_dump_json().encode() + b"\n"

    def ask(self, batch: Batch) -> Answer:
        """Sends a batch and waits for the answer. Raises TrackerLost."""
        try:
            self._channel.sendall(self._unsent + batch.model_dump_json().encode() + b"\n")
            self._unsent = b""
            line = self._lines.readline()
        except TimeoutError:
            raise TrackerLost(f"did not answer for {ANSWER_SECONDS:g} s") from None
        except OSError:
            line = b""
        if not line:
            self.kill()
            raise TrackerLost(f"ended with {describe_exit(self._process.returncode)}")
        try:
            return Answer.model_validate_json(line)
        except ValidationError:
            raise TrackerLost("sent an invalid answer") from None

    def close(self) -> None:
        """Lets the process exit, and waits for it."""
        self._channel.close()
        self._lines.close()
        self._process.wait()

    def kill(self) -> None:
        """Ends the process. May be called from any thread."""
        with suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()
