"""Interrupts user code that takes too long."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class TimeLimitExceeded(BaseException):
    """Raised in a block that takes too long. Not an Exception, so that ``except Exception`` does not catch it."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises TimeLimitExceeded at the current line of the block after ``seconds``.

    Interrupts the same code as Ctrl-C: Python code, sleeping and waiting, but not a computation of a
    native library. Has no effect outside of the main thread, since only the main thread receives signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise TimeLimitExceeded

    handler = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
