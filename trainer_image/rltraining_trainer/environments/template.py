"""``python -m rltraining_trainer.environments.template FD``: forks the processes of environments. See ``processes``.

The connection at the file descriptor FD brings ``(sys.path, preload, make, name)`` once. Then it brings None and a file
descriptor, which is answered with the id of a new process that serves a ``Slot`` there, or the id of such a process, which is
answered with its exit code when it has ended.
"""

from __future__ import annotations

import contextlib
import ctypes
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

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Serve until the connection ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for the sampler, which closes this
    control = Connection(int(sys.argv[1]))
    try:
        sys.path[:], preload, make, name = control.recv()
        # What cannot be imported is reported by the environment that needs it.
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
        _die_with(template)
        control.close()
        # Who uses these global generators gets other numbers in each process.
        random.seed()
        np.random.seed()
        _serve(connection, Slot(make, name))
    finally:
        os._exit(0)


def _serve(connection: Connection, slot: Slot) -> None:
    """Answer until the other end is closed."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            outcome = slot.answer(connection.recv())
            try:
                connection.send(outcome)
            except OSError:
                return
            except Exception as error:  # something in it cannot be pickled
                said = f"what environment {slot.name!r} returned cannot be sent: {one_line(error)}"
                connection.send(Outcome(error=UserCodeError(said)))


def _die_with(template: int) -> None:
    """Have the kernel kill this process when ``template``, its parent, ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != template:  # it has ended already
        os._exit(0)


if __name__ == "__main__":
    main()
