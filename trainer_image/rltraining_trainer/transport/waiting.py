"""Waits for another thread, while signals and a request to stop take effect immediately."""

from __future__ import annotations

import threading
import time

from rltraining_trainer.transport.errors import Stopped

_POLL_SECONDS = 0.05
"""Seconds between two checks of `stopping`. The latch itself is not polled: it wakes the waiter."""


class Latch:
    """A flag that is set once.

    It uses a bare lock, which, unlike an Event's condition, cannot deadlock with a signal handler.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        """Sets the latch. Must be called only once."""
        self._lock.release()

    def wait(self, timeout: float, stopping: threading.Event | None = None) -> bool:
        """Returns whether the latch is set within `timeout` seconds. Raises `Stopped`."""
        deadline = time.monotonic() + timeout
        while True:
            left = max(0.0, deadline - time.monotonic())
            if self._lock.acquire(timeout=left if stopping is None else min(left, _POLL_SECONDS)):
                # Wake the next waiter.
                self._lock.release()
                return True
            if stopping is not None and stopping.is_set():
                raise Stopped("stopped while waiting for an answer")
            if left == 0.0:
                return False
