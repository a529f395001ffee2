"""``python -m rltraining_trainer.environments.template FD``: forks environment processes (see
``processes``).

Reads orders from the connection at file descriptor FD. The first message is
``(sys.path, preload, make, name)``. Each further message is one of:

- None, followed by a file descriptor: forks a process that serves a ``Slot`` at that descriptor,
  and replies with its process id.
- A process id: waits for that process to end, and replies with its exit code.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle

import gymnasium as gym
import numpy as np

from rltraining_trainer.environments.slot import Outcome, Slot
from rltraining_trainer.errors import UserCodeError, one_line
from rltraining_trainer.process import die_with, print_stacks_on_signal


def main() -> None:
    """Serves orders until the connection closes."""
    # The sampler handles Ctrl-C and closes this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    print_stacks_on_signal()  # also in the forked processes
    control = Connection(int(sys.argv[1]))
    try:
        sys.path[:], preload, make, name = control.recv()
        # Import errors are ignored here: making an environment raises them again.
        with contextlib.suppress(BaseException):
            preload()
        while True:
            order = control.recv()
            if order is None:
                control.send(_fork(control, make, name))
            else:
                control.send(os.waitstatus_to_exitcode(os.waitpid(order, 0)[1]))
    except (EOFError, OSError):
        return


def _fork(control: Connection, make: Callable[[], gym.Env], name: str) -> int:
    connection, template = Connection(recv_handle(control)), os.getpid()
    pid = os.fork()
    if pid:
        connection.close()
        return pid
    try:
        die_with(template)
        control.close()
        # Reseed the global generators, which are copies of the template's in every child.
        random.seed()
        np.random.seed()
        _serve(connection, Slot(make, name))
    finally:
        os._exit(0)


def _serve(connection: Connection, slot: Slot) -> None:
    """Answers requests until the other end closes the connection."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            outcome = slot.answer(connection.recv())
            try:
                connection.send(outcome)
            except OSError:
                return
            except Exception as error:
                message = f"a return value cannot be pickled: {one_line(error)}"
                connection.send(Outcome(error=UserCodeError(f"environment {slot.name!r}: {message}")))


if __name__ == "__main__":
    main()
