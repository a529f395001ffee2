"""Implements `rltrain stack`: the Python stacks of the processes of a run on this machine."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rltraining_api.bounds import shortened
from rltraining_api.contract import STACKS_SIGNAL
from rltraining_api.files import open_regular

from rltraining import workdir
from rltraining.errors import ClientError, UsageError
from rltraining.printable import say

PROC = Path("/proc")
ANSWER_SECONDS = 5.0
"""Time after which a process that has printed nothing counts as stuck in the kernel."""
READ_SECONDS = 0.1
"""Interval of reads of a log."""
QUIET_READS = 5
"""The stacks are complete when this many reads have found no further line of them."""
NOT_OF_MEMBERS = ("rltrain.log", "runtime.log")
"""Logs of the engine, and of the process from which members are forked."""
TITLE_MAX = 100
HEADER_END = "(most recent call first):"
"""The end of the line before the stack of each thread."""
STACK_LINE = re.compile(
    r'(?:Current thread|Thread) 0x[0-9a-f]+.* \(most recent call first\):|  File ".*", line \d+ in .*|  \.\.\.|  <.*>'
)
"""A line of faulthandler's. The log has other lines as well."""


@dataclass(frozen=True)
class Process:
    """A process whose standard error is the log of a member."""

    pid: int
    member: str
    log: Path
    title: str
    """Its command line."""
    prints: bool
    """Whether it handles the signal, which would end it otherwise."""


def stack(folder: Path, member: str | None) -> None:
    """Prints the stacks of all threads of a run's processes, or of one member's. Raises ClientError, also
    after the other stacks if a process does not answer."""
    # Find the processes.
    if workdir.holds_sweep(folder):
        raise UsageError(f"{folder}: holds a sweep: name the folder of one of its runs")
    if not workdir.holds_run(folder):
        raise UsageError(f"{folder}: holds no run: name the folder of a run")
    if not (PROC / "self" / "fd").exists():
        raise ClientError(
            f"{PROC}: does not list processes here: send {STACKS_SIGNAL} to the process and read its log"
        )
    found = sorted(_processes(folder), key=lambda process: (process.member, process.pid))
    if not found:
        raise ClientError(f"{folder}: none of its processes runs")
    chosen = [process for process in found if _is_named(process.member, member)]
    if not chosen:
        known = ", ".join(dict.fromkeys(process.member for process in found))
        raise UsageError(f"{member}: is no running member of {folder}: it has {known}")
    # Print the stacks of one process after another, since several may share a log.
    stuck = []
    for process in chosen:
        say(f"{process.member}, process {process.pid}: {process.title}")
        if not process.prints:
            say("  (not a process of the trainer, or still starting)\n")
        elif lines := stacks_of(process):
            say("\n".join(f"\n{line}" if line.endswith(HEADER_END) else line for line in lines) + "\n")
        else:
            stuck.append(f"{process.member}, process {process.pid}: {_why_silent(process)}")
    if stuck:
        raise ClientError(*stuck)


def stacks_of(process: Process) -> list[str]:
    """Asks a process for its stacks, and returns their lines. Returns none if it does not answer."""
    with open_regular(process.log) as log:
        log.seek(0, os.SEEK_END)
        # The process may have ended or started another program since it was found.
        path = PROC / str(process.pid)
        with suppress(OSError, KeyError):
            if _handles_signal(path) and _identity((path / "fd" / "2").stat()) == _identity(
                process.log.stat()
            ):
                os.kill(process.pid, signal.Signals[STACKS_SIGNAL])
        text, lines, until = "", list[str](), time.monotonic() + ANSWER_SECONDS
        quiet = 0
        while quiet < QUIET_READS and time.monotonic() < until:
            time.sleep(READ_SECONDS)
            text += log.read().decode(errors="replace")
            before, lines = lines, [line for line in text.splitlines() if STACK_LINE.fullmatch(line)]
            quiet = quiet + 1 if lines and lines == before else 0
    return lines


def _processes(folder: Path) -> Iterator[Process]:
    """Finds the processes of a run, and those started by them, by their open log files."""
    # A link could lead to a file that other programs have open.
    logs = [log for log in (folder / "logs").glob("*.log") if log.resolve().is_relative_to(folder.resolve())]
    by_file = {_identity(log.stat()): log for log in logs if log.is_file() and log.name not in NOT_OF_MEMBERS}
    for path in PROC.iterdir():
        if not path.name.isdecimal():
            continue
        # Other users' processes, and those that have just ended, cannot be read.
        with suppress(OSError, KeyError):
            log = by_file[_identity((path / "fd" / "2").stat())]
            yield Process(int(path.name), log.stem, log, _title(path), _handles_signal(path))


def _handles_signal(path: Path) -> bool:
    """Returns whether a process has a handler for the signal. Without one, the signal would end it."""
    caught = int(_status(path, "SigCgt") or "0", 16)
    return bool(caught & 1 << (signal.Signals[STACKS_SIGNAL] - 1))


def _title(path: Path) -> str:
    """Returns the command line of a process, on one line."""
    words = (path / "cmdline").read_text(errors="replace").replace("\0", " ").split()
    return shortened(" ".join(words), TITLE_MAX)


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _status(path: Path, field: str) -> str:
    """Returns a field of a process's status, see proc(5). Empty if there is none."""
    lines = (line.partition(":") for line in (path / "status").read_text().splitlines())
    return next((value.strip() for name, _, value in lines if name == field), "")


def _is_named(member: str, name: str | None) -> bool:
    """Returns whether a member has this name, in full or without the job's."""
    return name is None or member == name or member.endswith(f"-{name}")


def _why_silent(process: Process) -> str:
    state = "it has ended"
    with suppress(OSError):
        state = f"its state is {_status(PROC / str(process.pid), 'State')}"
    return f"has printed no stack within {ANSWER_SECONDS:g} s: {state}"
