"""Asking a process to stop, such that it can always hear."""

from __future__ import annotations

import atexit
import os
import signal
import threading
from collections.abc import Callable

_STOP = (signal.SIGTERM, signal.SIGINT)


def on_stop_signal(action: Callable[[], None]) -> None:
    """Run `action`, typically an event's ``set``, once, when SIGTERM or SIGINT arrives.

    Not in a signal handler, which runs in the main thread: if that is just inside the event's own ``wait``,
    ``set`` waits for ever for a lock that its own thread holds. A thread hears of the signal through a pipe
    instead, also while the main thread is busy in C. To be called once, from the main thread.
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
    # Python restores the default action while it shuts down: a second signal would then replace the exit code.
    atexit.register(_ignore_signals)


def _ignore_signals() -> None:
    for number in _STOP:
        signal.signal(number, signal.SIG_IGN)
