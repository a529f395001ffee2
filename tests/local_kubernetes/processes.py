"""Parts that run in the background, found again by later commands through files with their process ids.

A process id alone may have passed on to a stranger: the file also holds the moment the process was started,
and only a process of that id *and* that moment is ever signalled.
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
    """One process, for as long as the machine is up."""

    pid: int
    started: int
    """Clock ticks since boot."""


def identity(pid: int) -> Identity | None:
    """None when it is not there, or dead and only not yet reaped. While threads of one that was killed are left, its files are
    open and its ports taken."""
    try:
        with Path(f"/proc/{pid}/stat").open() as file:
            # The second field is the name in parentheses, and may itself hold any character.
            state, *fields = file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    threads, started = int(fields[16]), int(fields[18])
    return None if state in "ZX" and threads <= 1 else Identity(pid, started)


def command_line(pid: int) -> list[str]:
    """Empty when it is not there."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")[:-1]
    except (FileNotFoundError, ProcessLookupError):
        return []


def all_processes() -> list[int]:
    """Every process id there is."""
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]


@dataclass(frozen=True)
class Process:
    """A program with its arguments; not necessarily running."""

    name: str
    argv: Sequence[str]
    directory: Path
    """Holds `<name>.pid` and `<name>.log`."""

    environment: Mapping[str, str] | None = None
    """Added to this process's own."""

    @property
    def log(self) -> Path:
        return self.directory / f"{self.name}.log"

    @property
    def pid_file(self) -> Path:
        return self.directory / f"{self.name}.pid"

    def running(self) -> Identity | None:
        return recorded(self.pid_file)

    def is_current(self) -> bool:
        """Running, and with just these arguments."""
        found = self.running()
        return found is not None and command_line(found.pid) == list(self.argv)

    def start(self) -> bool:
        """Start it unless it runs as it should; one that runs with other arguments is stopped first.

        Returns whether anything was started.
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
        """Take back one that runs just so, but whose starter was killed before it could write its file."""
        if self.running() is None:
            for pid in all_processes():
                if command_line(pid) == list(self.argv) and (found := identity(pid)) is not None:
                    self._record(found)
                    return True
        return False

    def _record(self, process: Identity) -> None:
        write(self.pid_file, f"{process.pid} {process.started}\n")

    def stop(self, *, seconds: float = 10.0, kill: bool = False) -> bool:
        """Ask it to end, and make it end after so many seconds (at once with `kill`). Whether it had run."""
        found = self.running()
        if found is not None:
            end(found, seconds=0.0 if kill else seconds)
        self.pid_file.unlink(missing_ok=True)
        return found is not None

    def ended(self) -> str | None:
        """Why there is no process any more, in a sentence with the end of its log; None while there is one."""
        return None if self.running() else f"{self.name} ended; the end of {self.log}:\n{tail(self.log, 15)}"


def recorded(pid_file: Path) -> Identity | None:
    """The process that a file speaks of, if it is still that one."""
    try:
        pid, started = map(int, pid_file.read_text().split())
    except (FileNotFoundError, ValueError):
        return None
    found = identity(pid)
    return found if found is not None and found.started == started else None


def end(process: Identity, *, seconds: float) -> None:
    """SIGTERM, and SIGKILL to what is left after so many seconds."""
    _signal(process, signal.SIGTERM if seconds > 0 else signal.SIGKILL)
    patience = time.monotonic() + seconds
    while identity(process.pid) == process:
        if time.monotonic() > patience:
            _signal(process, signal.SIGKILL)
            patience = time.monotonic() + 5.0
        time.sleep(0.01)
    with suppress(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)  # ours, if this very program started it


def _signal(process: Identity, number: int) -> None:
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        if identity(process.pid) == process:  # now it cannot become another
            signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return
    finally:
        os.close(handle)


def tail(path: Path, lines: int) -> str:
    """The last lines of a log, or a word that there is none."""
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
    except FileNotFoundError:
        return "(no log)"
