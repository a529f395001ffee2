"""The warm template process: imports a program once, then forks a copy for every request.

`python -m rltraining_operator.local.warm <fd> <module>:<function> <nice>` exchanges JSON lines over
the socket `fd`.
In:  {"id", "argv", "call", "env", "cwd", "log", "title"}: fork. The child calls
     `function(argv[1:]) -> exit code` if `call` is true, and executes `argv` otherwise.
     {"id", "signal"}: send it to the child's process group.
Out: {"ready": true} once imported, or {"error"}; {"id", "pid"}; {"id", "error"};
     {"id", "exit", "signal"}.

With `nice` above 0 the template and its forks have a lower CPU priority than the process that
monitors them.

The template is single-threaded, so that forking is safe. If its parent exits, the socket closes and
the template kills all children. If the template itself is killed, the kernel kills them
(PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import io
import json
import os
import selectors
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

Program = Callable[[list[str]], int]
GIVE_WAY_PERIOD, GIVE_WAY_TRIES = 0.1, 30
"""Seconds between attempts, and their number. Users other than root may change the priority of a
session once in this time, all users together."""
PR_SET_PDEATHSIG = 1  # linux/prctl.h
ARGUMENTS_START, ARGUMENTS_END = 45, 46
"""Places of arg_start and arg_end in /proc/self/stat, counted after the name (proc(5))."""


@dataclass(frozen=True)
class Child:
    """The task of a forked child."""

    request: dict[str, Any]
    parent: int


class Template:
    """Forks on request and reports the exit of children."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._input = b""
        self._ids: dict[int, int] = {}
        """Request by process id, of all running children."""
        self._wake, wake = socket.socketpair()
        self._wake.setblocking(False)
        wake.setblocking(False)
        self._wake_writer = wake
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the parent
        signal.set_wakeup_fd(wake.fileno())

    def serve(self) -> Child | None:
        """Serves until the parent is gone. In a forked child, returns immediately with its task."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._channel, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            while True:
                ready = {key.fileobj for key, _ in selector.select()}
                if self._wake in ready:
                    self._reap()
                if self._channel in ready:
                    data = self._channel.recv(1 << 16)
                    if not data:
                        self._kill_all()
                        return None
                    *lines, self._input = (self._input + data).split(b"\n")
                    for line in lines:
                        if child := self._answer(json.loads(line)):
                            return child

    def send(self, message: dict[str, Any]) -> None:
        """Sends one line to the parent. If the parent is gone, `serve` detects it."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._channel.sendall(json.dumps(message).encode() + b"\n")

    def _answer(self, request: dict[str, Any]) -> Child | None:
        if "signal" in request:
            for pid in [pid for pid, known in self._ids.items() if known == request["id"]]:
                _signal_group(pid, request["signal"])
            return None
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            self.send({"id": request["id"], "error": f"cannot fork: {error.strerror}"})
            return None
        if pid == 0:
            self._close()
            return Child(request, parent)
        self._ids[pid] = request["id"]
        self.send({"id": request["id"], "pid": pid})
        return None

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wake.recv(1 << 12)
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    # Also kill the processes that it left, as in a container.
                    os.killpg(pid, signal.SIGKILL)
                code = os.waitstatus_to_exitcode(status)
                self.send(
                    {
                        "id": self._ids.pop(pid),
                        "exit": code if code >= 0 else 128 - code,
                        "signal": max(-code, 0),
                    }
                )

    def _kill_all(self) -> None:
        for pid in self._ids:
            _signal_group(pid, signal.SIGKILL)
        for pid in self._ids:
            os.waitpid(pid, 0)

    def _close(self) -> None:
        signal.set_wakeup_fd(-1)
        for end in (self._channel, self._wake, self._wake_writer):
            end.close()


def _signal_group(pid: int, number: int) -> None:
    # Signal the group, or only the process if it has not created its group yet.
    for send in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            send(pid, number)
            return


def become(child: Child, program: Program) -> int:
    """Resets the state of the template in a forked child, then runs the program. Returns the exit
    code."""
    request = child.request
    # Create a group that is killed as a whole, and reset signals. The session, and its priority,
    # remain those of the template.
    os.setpgid(0, 0)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _die_with(child.parent)
    # Set the environment, the log and the working directory.
    os.environ.update(request["env"])
    log = os.open(request["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.chdir(request["cwd"])
    # Execute another program, or call the imported one.
    argv: list[str] = request["argv"]
    if not request["call"]:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # other programs rely on it
        try:
            os.execvp(argv[0], argv)  # noqa: S606 - a list, never a shell
        except OSError as error:
            print(f"cannot execute {argv[0]!r}: {error.strerror}", file=sys.stderr)
            return 127
    _set_title(request["title"])
    sys.argv = argv
    paths = filter(None, request["env"].get("PYTHONPATH", "").split(os.pathsep))
    # Add PYTHONPATH, as an interpreter does at its start.
    sys.path[:0] = [path for path in paths if path not in sys.path]
    return program(argv[1:])


def give_way(nice: int) -> None:
    """Lowers the CPU priority of this session by `nice`, so that other programs of the machine come
    first."""
    os.nice(nice)
    for _ in range(GIVE_WAY_TRIES):
        try:  # Linux may divide the cores between sessions: sched(7), autogroup
            Path("/proc/self/autogroup").write_text(str(nice))
        except BlockingIOError:
            time.sleep(GIVE_WAY_PERIOD)
        except OSError:
            return  # on this platform sessions have no priority
        else:
            return


def _die_with(parent: int) -> None:
    """Lets the kernel kill this process when the parent dies. On other platforms than Linux only
    the parent can end it."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)


def _set_title(title: str) -> None:
    """Sets the title that `ps` shows and `pgrep -f` matches. Otherwise every pod looks like the
    template. Linux only."""
    with contextlib.suppress(OSError):
        with open("/proc/self/stat", "rb") as stat:  # noqa: PTH123
            fields = stat.read().rpartition(b")")[2].split()
        start, end = int(fields[ARGUMENTS_START]), int(fields[ARGUMENTS_END])
        if start:
            ctypes.memmove(
                start, title.encode().ljust(end - start, b"\0")[: end - start - 1] + b"\0", end - start
            )


def end(code: int) -> NoReturn:
    """Ends a fork like `sys.exit`, but leaves its memory to the kernel.

    The interpreter would free each object of the template, and so copy its pages: 0.2 s of CPU time.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads that are not daemons
    atexit._run_exitfuncs()
    # Flush open files too. The template's objects are frozen, and not among these.
    files = [one for one in gc.get_objects() if isinstance(one, io.TextIOWrapper | io.BufferedWriter)]
    for file in (sys.stdout, sys.stderr, *files):
        with contextlib.suppress(OSError, ValueError):  # a full disk, a closed file
            file.flush()
    os._exit(code)


def main() -> NoReturn:
    """Runs the template and, after `serve` has returned a child, its forked copy."""
    template = Template(socket.socket(fileno=int(sys.argv[1])))
    if nice := int(sys.argv[3]):
        give_way(nice)
    module, _, name = sys.argv[2].partition(":")
    try:
        program: Program = getattr(importlib.import_module(module), name)
    except Exception as error:
        template.send({"error": f"cannot import {sys.argv[2]}: {error}"})
        raise
    gc.collect()
    gc.freeze()  # the collector does not touch shared pages, so they stay shared
    template.send({"ready": True})
    child = template.serve()
    if child is None:
        os._exit(0)  # skips exit handlers of libraries, which could hang
    end(become(child, program))


if __name__ == "__main__":
    main()
