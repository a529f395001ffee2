"""Writes checkpoints in the background, so that training does not block on storage."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from rltraining_api.status import CheckpointStatus

from rltraining_trainer.checkpoint.errors import CheckpointError
from rltraining_trainer.checkpoint.store import CheckpointStore

_LOG = logging.getLogger(__name__)


class CheckpointWriter:
    """Writes snapshots in a thread. A newer snapshot replaces one that has not been started."""

    newest: CheckpointStatus | None
    """The newest complete checkpoint."""
    error: CheckpointError | None = None
    """The error of the last write. None after a success."""

    def __init__(self, store: CheckpointStore) -> None:
        """Starts the thread. Raises CheckpointError if the checkpoints cannot be listed."""
        self.newest = store.newest()
        self._store = store
        self._changed = threading.Condition()
        self._waiting: tuple[int, dict[str, Any]] | None = None
        self._writing = False
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="checkpoint-writer", daemon=True)
        self._thread.start()

    @property
    def failure(self) -> str | None:
        """The reason why the last write failed, in one sentence. None after a success."""
        error = self.error
        return f"{error}; training continues" if error else None

    def submit(self, step: int, state: dict[str, Any]) -> None:
        """Queues ``state``, a ``snapshot`` that must not be modified, and returns immediately."""
        with self._changed:
            self._waiting = (step, state)
            self._changed.notify_all()

    def flush(self, timeout: float) -> bool:
        """Waits until the submitted state is written. Returns False after ``timeout`` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._writing and self._waiting is None, timeout)

    def close(self, timeout: float) -> bool:
        """Flushes and ends the thread. Returns False after ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        self.flush(timeout)
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(max(0.0, deadline - time.monotonic()))
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (job := self._next()) is not None:
            self._write(*job)
            with self._changed:
                self._writing = False
                self._changed.notify_all()

    def _next(self) -> tuple[int, dict[str, Any]] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._waiting is not None)
            job, self._waiting = self._waiting, None
            self._writing = job is not None
            return job

    def _write(self, step: int, state: dict[str, Any]) -> None:
        try:
            self.newest = self._store.save(step, state)
        except Exception as cause:  # must not end the run
            self.error = _to_checkpoint_error(cause, step)
            _LOG.warning("%s", self.failure)
        else:
            self.error = None


def _to_checkpoint_error(cause: Exception, step: int) -> CheckpointError:
    if isinstance(cause, CheckpointError):
        return cause
    error = CheckpointError(f"checkpoint at step {step}: {cause!r}")
    error.__cause__ = cause
    return error
