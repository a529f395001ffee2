"""Processes for the transport tests: forked from a process that has imported torch, each in a given role.

The tests read the processes' output.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HANG_SECONDS = 120.0
"""A longer wait counts as a hang, however busy the machine is."""
GRACE_SECONDS = 25.0
"""Limit for the end of a process after SIGTERM.

The kubelet kills the process after 30 s, and then the last checkpoint is lost.
"""


def is_frozen(pid: int) -> bool:
    """Whether all threads of a process have stopped."""
    return all(_has_stopped(thread) for thread in Path(f"/proc/{pid}/task").iterdir())


def _has_stopped(thread: Path) -> bool:
    """Whether a thread, given by its folder in /proc, has stopped or ended."""
    try:
        return " T " in (thread / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


class Member:
    """A process with a role of transport_members."""

    def __init__(self, zygote: Zygote, role: str, fifo: Path, arguments: tuple[Any, ...]) -> None:
        os.mkfifo(fifo)
        self._said = os.fdopen(
            os.open(fifo, os.O_RDWR), "rb", buffering=0
        )  # RDWR: no end of file, no waiting
        self._zygote = zygote
        self.pid = zygote.order({"role": role, "fifo": str(fifo), "arguments": arguments})
        self._handle = os.pidfd_open(self.pid)
        self._ended: int | None = None

    def hear(self, timeout: float = HANG_SECONDS) -> str:
        """Returns the next line of the process's output."""
        assert select.select([self._said], [], [], timeout)[0], "it says nothing"
        line = b""
        while not line.endswith(b"\n"):
            line += self._said.read(1)
        return line.decode().strip()

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        os.kill(self.pid, number)

    def freeze(self) -> None:
        """Stops all threads until SIGCONT, and waits until they have stopped."""
        self.kill(signal.SIGSTOP)
        while not is_frozen(self.pid):
            time.sleep(0.001)

    def ended(self, timeout: float = 1) -> bool:
        return bool(select.select([self._handle], [], [], timeout)[0])

    def wait(self, timeout: float = HANG_SECONDS) -> int:
        """Returns the exit code; a negative code is the signal that ended the process."""
        if self._ended is None:
            assert self.ended(timeout), "it does not end"
            self._ended = self._zygote.order({"reap": self.pid})
        return self._ended

    def close(self) -> None:
        """Ends the process. May be called twice."""
        if self._said.closed:
            return
        if self._ended is None:
            self.kill()
            self.wait()
        os.close(self._handle)
        self._said.close()


class Zygote:
    """The process that forks members."""

    def __init__(self, program: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name(program))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "TP_SOCKET_IFNAME": "lo"},
        )

    def order(self, order: dict[str, Any]) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(order), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


Start = Callable[..., Member]
"""From a role and its arguments to a member."""
