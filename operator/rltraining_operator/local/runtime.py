"""Starting processes: what a container runtime is to a kubelet."""

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
from rltraining_operator.pods import PROGRAM

END_SECONDS = 5.0
"""How long a template may take to end its forks and itself."""


class StartError(ClusterError):
    """The process could not be started; trying again may help."""


class Exit(NamedTuple):
    """How a process ended."""

    code: int
    """As Kubernetes shows it: 128 + number for a signal."""
    signal: int
    """0: it ended by itself."""


@dataclass(frozen=True)
class Command:
    """A process to start."""

    argv: Sequence[str]
    env: Mapping[str, str]
    """On top of the environment of this process."""
    cwd: Path
    log: Path
    """Standard output and error are appended to it."""
    title: str


class Process(Protocol):
    """A started process, the leader of its own process group."""

    @property
    def pid(self) -> int: ...

    async def wait(self) -> Exit:
        """How it ended, once it has; all of its group is gone then."""

    def send_signal(self, number: int) -> None:
        """To the whole group; nothing happens when it has ended."""


class Runtime(Protocol):
    """Starts processes."""

    async def open(self, log: Path) -> None:
        """Get ready; what the runtime itself has to say goes to `log`."""

    async def start(self, command: Command) -> Process:
        """Raises `StartError`. Cancelled, it leaves no process behind."""

    async def close(self) -> None:
        """Kill what still runs."""


class WarmRuntime:
    """Forks processes from a template that has imported the trainer already: a start takes milliseconds, not seconds.

    `entry` is `module:function`, `function(argv) -> exit code`; it is called for the command `rltraining-trainer`. Any
    other command is executed as it is. A template that dies takes its children with it and is made anew.
    """

    def __init__(self, entry: str) -> None:
        self._entry = entry
        self._log = Path(os.devnull)
        self._template: _Template | None = None
        self._making = asyncio.Lock()

    async def open(self, log: Path) -> None:
        """Start the template; its import goes on while pods are being planned."""
        self._log = log
        await self._living_template()

    async def start(self, command: Command) -> Process:
        """Fork a process."""
        template = await self._living_template()
        return await template.start(command)

    async def close(self) -> None:
        """End the template, and with it whatever it still runs."""
        if self._template is not None:
            await self._template.close()

    async def _living_template(self) -> _Template:
        async with self._making:
            if self._template is None or not self._template.alive:
                self._template = await _Template.make(self._entry, self._log)
            return self._template


class SharedRuntime:
    """A runtime for several clusters, one after another or at once: who made it opens and closes the one behind it."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def open(self, log: Path) -> None:
        """It is open."""

    async def start(self, command: Command) -> Process:
        """Raises `StartError`."""
        return await self._runtime.start(command)

    async def close(self) -> None:
        """A cluster has ended its own processes before."""


@dataclass
class _WarmProcess:
    """A fork of a template."""

    pid: int
    id: int
    template: _Template
    ended: asyncio.Future[Exit] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    async def wait(self) -> Exit:
        return await asyncio.shield(self.ended)

    def send_signal(self, number: int) -> None:
        if not self.ended.done():
            self.template.send({"id": self.id, "signal": int(number)})


class _Template:
    """Our end of one template process (`local/warm.py` is the other)."""

    def __init__(self, process: asyncio.subprocess.Process, writer: asyncio.StreamWriter, log: Path) -> None:
        self.alive = True
        self._process = process
        self._writer = writer
        self._log = log
        self._ids = itertools.count()
        self._starting: dict[int, asyncio.Future[_WarmProcess]] = {}
        self._children: dict[int, _WarmProcess] = {}
        self._error = ""
        """Why it could not import the program."""
        self._listening: asyncio.Task[None] | None = None

    @classmethod
    async def make(cls, entry: str, log: Path) -> _Template:
        """Start a template process."""
        ours, theirs = socket.socketpair()
        with theirs, log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",  # modules of the folder that somebody happens to be in are none of ours
                "-u",
                *("-m", "rltraining_operator.local.warm", str(theirs.fileno()), entry),
                env={"OMP_NUM_THREADS": "1"}
                | os.environ,  # libraries that start threads at import must not: it forks
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C in the terminal reaches only who can end things in order
            )
        reader, writer = await asyncio.open_connection(sock=ours)
        template = cls(process, writer, log)
        template._listening = asyncio.create_task(template._listen(reader))
        return template

    async def start(self, command: Command) -> Process:
        number = next(self._ids)
        started: asyncio.Future[_WarmProcess] = asyncio.get_running_loop().create_future()
        self._starting[number] = started
        self.send(
            {
                "id": number,
                "argv": list(command.argv),
                "call": command.argv[0] == PROGRAM,  # which the template has imported already
                "env": dict(command.env),
                "cwd": str(command.cwd),
                "log": str(command.log),
                "title": command.title,
            }
        )
        try:
            return await started
        finally:
            self._starting.pop(number, None)

    async def close(self) -> None:
        """It ends when its socket does; should it not, it is killed."""
        self._writer.close()
        if self._listening is not None:
            done, _ = await asyncio.wait([self._listening], timeout=END_SECONDS)
            if not done:
                self._process.kill()
            await self._listening

    def send(self, message: dict[str, Any]) -> None:
        """One line; should the template be dead, `_listen` finds out."""
        self._writer.write(json.dumps(message).encode() + b"\n")

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        """Everything the template says, until it is gone; then settle what it left open."""
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
            self.send({"id": number, "signal": int(signal.SIGKILL)})  # nobody waits for it any more
        elif "error" in message:
            started.set_exception(StartError(message["error"]))
        else:
            process = self._children[number] = _WarmProcess(message["pid"], number, self)
            started.set_result(process)

    def _end(self, number: int, how: Exit) -> None:
        process = self._children.pop(number, None)
        if process is not None:
            process.ended.set_result(how)
