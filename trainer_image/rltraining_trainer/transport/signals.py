"""Handles stop signals without deadlocks."""

from __future__ import annotations

import atexit
import os
import signal
import threading
from collections.abc import Callable

_STOP = (signal.SIGTERM, signal.SIGINT)


def on_stop_signal(action: Callable[[], None]) -> None:
    """Runs `action`, typically an event's ``set``, once, when SIGTERM or SIGINT arrives.

    The action does not run in a signal handler, because handlers run in the main thread: if that
    thread is inside the event's ``wait``, ``set`` deadlocks on a lock that its own thread holds.
    Instead, a separate thread receives the signal through a pipe, even while the main thread is
    busy in C. Must be called once, from the main thread.
    """
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    for number in _STOP:
        signal.signal(number, lambda number, frame: None)

    def listen() -> None:
        while os.read(read_end, 1)[0] not in _STOP:
            pass
        action()

    threading.Thread(target=listen, name="signals", daemon=True).start()
    # Python restores the default action at exit. A second signal would replace the exit code.
    atexit.register(_ignore_signals)


def _ignore_signals() -> None:
    for number in _STOP:
        signal.signal(number, signal.SIG_IGN)
