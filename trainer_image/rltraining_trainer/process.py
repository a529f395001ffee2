"""Functions for all processes of the trainer: startup, the tie to a parent, and exit codes."""

from __future__ import annotations

import ctypes
import faulthandler
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from rltraining_api.contract import ENV_CODE_DIR, ENV_MANIFEST_DIR, STACKS_SIGNAL

_LOG = logging.getLogger(__name__)

PR_SET_PDEATHSIG = 1  # linux/prctl.h
NICE = 10
"""Added niceness, the default of the `nice` command. Beside a learner that is always busy it leaves
a tenth of a core. The lowest priority would leave a hundredth, and delay results by hours."""
EXIT_SECONDS = 5.0
"""How long user code may delay the end of a process."""
STANDARD_ERROR = 2
"""The file descriptor, which is the log of a pod."""


def prepare_process(log_name: str) -> None:
    """Logs to standard output, makes the user's modules importable and prints stacks on a signal.

    Args:
        log_name: Source of a message in the log. ``%(name)s`` is replaced by the logger's name.
    """
    logging.basicConfig(
        stream=sys.stdout,
        level=logging.INFO,
        format=f"%(asctime)s %(levelname)s {log_name}: %(message)s",
        force=True,
    )
    sys.path += filter(None, map(os.environ.get, (ENV_CODE_DIR, ENV_MANIFEST_DIR)))
    print_stacks_on_signal()


def print_stacks_on_signal() -> None:
    """Makes a signal print the Python stacks of all threads to standard error, even while user code
    blocks in C or holds the GIL. ``rltrain stack`` sends the signal."""
    faulthandler.register(signal.Signals[STACKS_SIGNAL], STANDARD_ERROR, all_threads=True)


def start_child(
    module: str, *arguments: str, env: Mapping[str, str] | None = None
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Starts ``python -m module FD arguments``. Returns the process, and a socket to its file descriptor ``FD``."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(  # noqa: S603 - runs a module of this package
            # -P keeps the working directory out of sys.path.
            [sys.executable, "-P", "-m", module, str(theirs.fileno()), *arguments],
            env=env,
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
    return process, ours


def attach_to_learner() -> socket.socket:
    """Makes this process a helper of the learner that started it with the arguments ``FD PARENT``. Returns
    the socket to the learner.

    The process ends with the learner, has a low priority, and ignores signals to the process group,
    since the learner ends this process after its last message.
    """
    channel, parent = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    die_with(parent)
    give_way()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    return channel


def die_with(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Makes the kernel send this process a signal when its parent dies. SIGKILL ends it even if user code
    holds the GIL.

    Only Linux supports this. Ends this process if the parent has died already.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(1)


def give_way() -> None:
    """Lowers the CPU priority, and makes the kernel kill this process first if memory runs out."""
    with suppress(OSError):
        os.nice(NICE)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def end_soon(code: int, seconds: float = EXIT_SECONDS) -> None:
    """Ends this process after ``seconds`` if it has not ended by itself, with a warning.

    Threads, child processes and exit handlers of user code could otherwise block its end,
    although its results are complete. Call this last.
    """

    def end() -> None:
        time.sleep(seconds)
        names = [thread.name for thread in threading.enumerate() if not thread.daemon]
        _LOG.warning(
            "the process is ended %g s after its last result: user code still runs, in a child process, an "
            "exit handler or a thread that is no daemon (%s)",
            *(seconds, ", ".join(name for name in names if name != "MainThread") or "none"),
        )
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()
        os._exit(code)

    threading.Thread(target=end, name="end", daemon=True).start()


def describe_exit(code: int) -> str:
    """Describes an exit code of ``subprocess``, such as ``exit code 1`` or ``SIGKILL`` for -9."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
