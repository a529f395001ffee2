"""Background processes, which later commands find through files with their process ids.

A process id alone may have been reused. The file therefore also holds the start time of the process,
and only a process with that id *and* start time receives a signal.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.local_kubernetes.errors import ClusterError
from tests.local_kubernetes.places import write


@dataclass(frozen=True)
class Identity:
    """Identifies a process uniquely until the machine reboots."""

    pid: int
    started: int
    """Clock ticks since boot."""


def identity(pid: int) -> Identity | None:
    """Returns None for a process that does not exist, or that is a zombie without threads.

    While a killed process still has threads, its files are open and its ports in use.
    """
    try:
        with Path(f"/proc/{pid}/stat").open() as file:
            # The second field is the name in parentheses, and may contain any character.
            state, *fields = file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    threads, started = int(fields[16]), int(fields[18])
    return None if state in "ZX" and threads <= 1 else Identity(pid, started)


def command_line(pid: int) -> list[str]:
    """Returns the command line, or an empty list if the process does not exist."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")[:-1]
    except (FileNotFoundError, ProcessLookupError):
        return []


def all_processes() -> list[int]:
    """Returns every process id."""
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]


@dataclass(frozen=True)
class Process:
    """A program with its arguments, which may or may not be running."""

    name: str
    argv: Sequence[str]
    directory: Path
    """Holds `<name>.pid` and `<name>.log`."""

    environment: Mapping[str, str] | None = None
    """Variables added to this process's own environment."""

    @property
    def log(self) -> Path:
        return self.directory / f"{self.name}.log"

    @property
    def pid_file(self) -> Path:
        return self.directory / f"{self.name}.pid"

    def running(self) -> Identity | None:
        return recorded(self.pid_file)

    def is_current(self) -> bool:
        """Returns whether the program runs with exactly these arguments."""
        found = self.running()
        return found is not None and command_line(found.pid) == list(self.argv)

    def start(self) -> bool:
        """Starts the program unless it runs with these arguments. Stops it first if it runs with others.

        Returns whether a process was started.
        """
        if self.is_current() or self._adopt():
            return False
        self.stop()
        self.directory.mkdir(parents=True, exist_ok=True)
        log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            pid = os.posix_spawn(
                self.argv[0],
                list(self.argv),
                {**os.environ, **(self.environment or {})},
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, log, 1),
                    (os.POSIX_SPAWN_DUP2, log, 2),
                ],
                setsid=True,
                setsigmask=[],
                setsigdef=[signal.SIGPIPE, signal.SIGINT],
            )
        except OSError as error:
            raise ClusterError(f"{self.name} cannot be started: {self.argv[0]}: {error.strerror}") from error
        finally:
            os.close(log)
        self._record(identity(pid) or Identity(pid, 0))
        return True

    def _adopt(self) -> bool:
        """Records a process with exactly these arguments; its starter was killed before it wrote the file."""
        if self.running() is None:
            for pid in all_processes():
                if command_line(pid) == list(self.argv) and (found := identity(pid)) is not None:
                    self._record(found)
                    return True
        return False

    def _record(self, process: Identity) -> None:
        write(self.pid_file, f"{process.pid} {process.started}\n")

    def stop(self, *, seconds: float = 10.0, kill: bool = False) -> bool:
        """Stops the program with SIGTERM, and kills it after `seconds`, or immediately with `kill`.

        Returns whether the program was running.
        """
        found = self.running()
        if found is not None:
            end(found, seconds=0.0 if kill else seconds)
        self.pid_file.unlink(missing_ok=True)
        return found is not None

    def ended(self) -> str | None:
        """Returns why the process has ended, with the end of its log, or None while it runs."""
        return None if self.running() else f"{self.name} ended; the end of {self.log}:\n{tail(self.log, 15)}"


def recorded(pid_file: Path) -> Identity | None:
    """Returns the process that a pid file names, if that process still exists."""
    try:
        pid, started = map(int, pid_file.read_text().split())
    except (FileNotFoundError, ValueError):
        return None
    found = identity(pid)
    return found if found is not None and found.started == started else None


def end(process: Identity, *, seconds: float) -> None:
    """Sends SIGTERM, and SIGKILL if the process has not ended after `seconds`."""
    _signal(process, signal.SIGTERM if seconds > 0 else signal.SIGKILL)
    patience = time.monotonic() + seconds
    while identity(process.pid) == process:
        if time.monotonic() > patience:
            _signal(process, signal.SIGKILL)
            patience = time.monotonic() + 5.0
        time.sleep(0.01)
    with suppress(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)  # a child, if this program started the process


def _signal(process: Identity, number: int) -> None:
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        if identity(process.pid) == process:  # the pid cannot be reused from here on
            signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return
    finally:
        os.close(handle)


def tail(path: Path, lines: int) -> str:
    """Returns the last lines of a log, or a note that there is no log."""
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
    except FileNotFoundError:
        return "(no log)"
