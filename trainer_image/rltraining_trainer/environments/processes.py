"""Environments in processes of their own, one each, which end with this one however it ends.

A template process imports once what the environments need, and forks one process for each of them: they start in
milliseconds and share memory. Nothing is forked from this process, which has threads. The template ends when its connection to
this process ends, and the kernel then kills its children (``PR_SET_PDEATHSIG``), whatever they are doing.

Observations are pickled, not in shared memory as ``AsyncVectorEnv`` has it: any space can be sent, and it takes less than
a tenth of a millisecond for each environment.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import send_handle

import gymnasium as gym

from rltraining_trainer.environments.slot import Outcome, Request
from rltraining_trainer.errors import EnvironmentLost

CLOSE_SECONDS = 2.0
"""For which environments may take to close; their processes are then killed."""


class InProcesses:
    """Each slot in a process of its own.

    Args:
        make: makes an environment; it is pickled. Raises TrainerError.
        name: of the environment, for messages.
        preload: makes the template import what ``make`` will need; it is pickled.
    """

    def __init__(
        self, make: Callable[[], gym.Env], name: str, count: int, preload: Callable[[], None]
    ) -> None:
        self._name = name
        self._template, self._control = _start_template()
        self._control.send((list(sys.path), preload, make, name))
        self._workers: list[_Worker | None] = [None] * count

    def call(self, requests: Sequence[Request | None]) -> list[Outcome]:
        for b, request in enumerate(requests):
            if request is not None:
                self._send(b, request)
        return [
            Outcome() if request is None else self._receive(b, request[0])
            for b, request in enumerate(requests)
        ]

    def close(self) -> None:
        """Close all environments, and their processes. Never raises: what they raise is of no use any more."""
        workers = [worker for worker in self._workers if worker is not None]
        for worker in workers:
            worker.send(("close", ()))
        until, closing = time.monotonic() + CLOSE_SECONDS, [worker.connection for worker in workers]
        while closing and (left := until - time.monotonic()) > 0:
            for ready in wait(closing, left):
                closing.remove(ready)  # type: ignore[arg-type]
        self._template.kill()  # and the kernel kills its children
        self._template.wait()
        for worker in workers:
            worker.connection.close()
        self._control.close()
        self._workers = [None] * len(self._workers)

    def _send(self, b: int, request: Request) -> None:
        worker = self._workers[b]
        if worker is None and request[0] == "make":
            worker = self._workers[b] = self._fork()
        if worker is not None:
            worker.send(request)

    def _receive(self, b: int, method: str) -> Outcome:
        worker = self._workers[b]
        try:
            if worker is not None:
                outcome: Outcome = worker.connection.recv()
                return outcome
            how = "had ended"
        except (EOFError, OSError):
            assert worker is not None, "it was asked"
            worker.connection.close()
            self._workers[b] = None
            self._control.send(worker.pid)
            how = f"ended with {_told(self._control.recv())}"
        error = f"environment {self._name!r}: the process of environment {b} {how} in {method}"
        return Outcome(error=EnvironmentLost(error))

    def _fork(self) -> _Worker:
        ours, theirs = socket.socketpair()
        self._control.send(None)
        send_handle(self._control, theirs.fileno(), self._template.pid)
        pid: int = self._control.recv()
        theirs.close()
        return _Worker(Connection(ours.detach()), pid)


class _Worker:
    """The process of one environment."""

    def __init__(self, connection: Connection, pid: int) -> None:
        self.connection, self.pid = connection, pid

    def send(self, request: Request) -> None:
        """Of one that has ended: nothing. The answer that does not come says so."""
        with contextlib.suppress(OSError):
            self.connection.send(request)


def _start_template() -> tuple[subprocess.Popen[bytes], Connection]:
    """(the process, and the connection to it). See ``template``."""
    ours, theirs = socket.socketpair()
    with theirs:
        # -P: the working directory is no place to import from, unless this process does so too.
        command = [
            sys.executable,
            "-P",
            "-m",
            "rltraining_trainer.environments.template",
            str(theirs.fileno()),
        ]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])  # noqa: S603
    return process, Connection(ours.detach())


def _told(status: int) -> str:
    """``waitstatus_to_exitcode`` in words."""
    if status >= 0:
        return f"exit code {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"
