"""Starts processes, as a container runtime does for a kubelet."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from rltraining_operator.errors import ClusterError
from rltraining_operator.pods.build import PROGRAM

END_SECONDS = 5.0
"""Seconds in which a template should end its forks and itself."""


class StartError(ClusterError):
    """The process could not be started. A retry may help."""


class Exit(NamedTuple):
    """How a process ended."""

    code: int
    """As shown by Kubernetes: 128 + number for a signal."""
    signal: int
    """0 if no signal ended it."""


@dataclass(frozen=True)
class Command:
    """A process to start."""

    argv: Sequence[str]
    env: Mapping[str, str]
    """Added to the environment of this process."""
    cwd: Path
    log: Path
    """Standard output and error are appended to it."""
    title: str


class Runtime(Protocol):
    """Starts processes."""

    async def open(self, log: Path) -> None:
        """Prepares the runtime, whose own output goes to `log`."""

    async def start(self, command: Command) -> Process:
        """Starts a process. Leaves no process behind if cancelled. Raises `StartError`."""

    async def close(self) -> None:
        """Kills the processes that still run."""


class WarmRuntime:
    """Forks processes from a template that has imported the trainer, so that a start takes
    milliseconds instead of seconds.

    `entry` is `module:function`, with `function(argv) -> exit code`. It is called for the command
    `rltraining-trainer`. Any other command is executed. If a template dies, its children die with
    it and a new template is started. `nice` lowers the CPU priority of all processes, from 0 to 19.
    """

    def __init__(self, entry: str, nice: int = 0) -> None:
        self._entry = entry
        self._nice = nice
        self._log = Path(os.devnull)
        self._template: _Template | None = None
        self._making = asyncio.Lock()

    async def open(self, log: Path) -> None:
        """Starts the template, which imports the program while pods are planned."""
        self._log = log
        await self._living_template()

    async def start(self, command: Command) -> Process:
        """Forks a process. Raises `StartError`."""
        template = await self._living_template()
        return await template.start(command)

    async def close(self) -> None:
        """Ends the template and its processes."""
        if self._template is not None:
            await self._template.close()

    async def _living_template(self) -> _Template:
        async with self._making:
            if self._template is None or not self._template.alive:
                self._template = await _Template.make(self._entry, self._nice, self._log)
            return self._template


class SharedRuntime:
    """A runtime for several clusters, in sequence or in parallel. Its creator opens and closes the
    wrapped runtime."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def open(self, log: Path) -> None:
        """Does nothing, because the wrapped runtime is open."""

    async def start(self, command: Command) -> Process:
        """Starts a process. Raises `StartError`."""
        return await self._runtime.start(command)

    async def close(self) -> None:
        """Does nothing, because a cluster ends its own processes before."""


@dataclass
class Process:
    """A fork of a template, which leads a process group."""

    pid: int
    id: int
    template: _Template
    ended: asyncio.Future[Exit] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    async def wait(self) -> Exit:
        """Waits until the process and its whole group have ended, and returns how the process
        ended."""
        return await asyncio.shield(self.ended)

    def send_signal(self, number: int) -> None:
        """Sends a signal to the whole group. Does nothing if the process has ended."""
        if not self.ended.done():
            self.template.send({"id": self.id, "signal": int(number)})


class _Template:
    """The client of one template process (`local/warm.py` is the server)."""

    def __init__(self, process: asyncio.subprocess.Process, writer: asyncio.StreamWriter, log: Path) -> None:
        self.alive = True
        self._process = process
        self._writer = writer
        self._log = log
        self._ids = itertools.count()
        self._starting: dict[int, asyncio.Future[Process]] = {}
        self._children: dict[int, Process] = {}
        self._error = ""
        """Why the template could not import the program."""
        self._listening: asyncio.Task[None] | None = None

    @classmethod
    async def make(cls, entry: str, nice: int, log: Path) -> _Template:
        """Starts a template process."""
        ours, theirs = socket.socketpair()
        with theirs, log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",  # do not import modules from the current directory
                "-u",
                *("-m", "rltraining_operator.local.warm", str(theirs.fileno()), entry, str(nice)),
                # Libraries must not start threads at import, since the template forks.
                env={"OMP_NUM_THREADS": "1"} | os.environ,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[theirs.fileno()],
                # Ctrl-C must reach only the parent, which ends processes in order.
                start_new_session=True,
            )
        reader, writer = await asyncio.open_connection(sock=ours)
        template = cls(process, writer, log)
        template._listening = asyncio.create_task(template._listen(reader))
        return template

    async def start(self, command: Command) -> Process:
        number = next(self._ids)
        started: asyncio.Future[Process] = asyncio.get_running_loop().create_future()
        self._starting[number] = started
        self.send(
            {
                "id": number,
                "argv": list(command.argv),
                "call": command.argv[0] == PROGRAM,  # the template has imported this program
                "env": dict(command.env),
                "cwd": str(command.cwd),
                "log": str(command.log),
                "title": command.title,
            }
        )
        try:
            return await started
        except asyncio.CancelledError:
            # The process may have started just before the cancellation.
            if not started.cancelled() and started.exception() is None:
                started.result().send_signal(signal.SIGKILL)
            raise
        finally:
            self._starting.pop(number, None)

    async def close(self) -> None:
        """Closes the socket, which ends the template. Kills the template if it does not exit in
        time."""
        self._writer.close()
        if self._listening is not None:
            done, _ = await asyncio.wait([self._listening], timeout=END_SECONDS)
            if not done:
                self._process.kill()
            await self._listening

    def send(self, message: dict[str, Any]) -> None:
        """Sends one line. If the template is dead, `_listen` detects it."""
        self._writer.write(json.dumps(message).encode() + b"\n")

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        """Handles messages of the template until it has ended. Then fails pending starts and ends
        its children."""
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                self._hear(json.loads(line))
        self.alive = False
        self._writer.close()
        await self._process.wait()
        why = (
            self._error or f"the template process ended with {self._process.returncode}; its log: {self._log}"
        )
        for started in self._starting.values():
            if not started.done():
                started.set_exception(StartError(why))
        for child in list(self._children.values()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            self._end(child.id, Exit(128 + signal.SIGKILL, int(signal.SIGKILL)))

    def _hear(self, message: dict[str, Any]) -> None:
        number = message.get("id")
        if number is None:
            self._error = message.get("error", "")
        elif "exit" in message:
            self._end(number, Exit(message["exit"], message["signal"]))
        elif (started := self._starting.get(number)) is None or started.done():
            self.send({"id": number, "signal": int(signal.SIGKILL)})  # the start was cancelled
        elif "error" in message:
            started.set_exception(StartError(message["error"]))
        else:
            process = self._children[number] = Process(message["pid"], number, self)
            started.set_result(process)

    def _end(self, number: int, how: Exit) -> None:
        process = self._children.pop(number, None)
        if process is not None:
            process.ended.set_result(how)
