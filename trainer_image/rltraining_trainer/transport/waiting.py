"""Waiting for what another thread brings, while signals and a request to stop are answered at once."""

from __future__ import annotations

import threading
import time

from rltraining_trainer.transport.errors import Stopped

_GLANCE = 0.05
"""Seconds between two looks at `stopping`. What is waited for needs no looking: it wakes the waiter."""


class Latch:
    """Set once, for ever. A bare lock inside: unlike an Event's condition it cannot deadlock with a signal
    handler.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        """To be called once."""
        self._lock.release()

    def wait(self, timeout: float, stopping: threading.Event | None = None) -> bool:
        """Whether it is set within `timeout` seconds. Raises `Stopped` as soon as `stopping` is set."""
        deadline = time.monotonic() + timeout
        while True:
            left = max(0.0, deadline - time.monotonic())
            if self._lock.acquire(timeout=left if stopping is None else min(left, _GLANCE)):
                self._lock.release()  # for the next waiter
                return True
            if stopping is not None and stopping.is_set():
                raise Stopped("stopped while waiting for an answer")
            if left == 0.0:
                return False
