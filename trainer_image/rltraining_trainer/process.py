"""Functions for all processes of the trainer: startup, the tie to a parent, and exit codes."""

from __future__ import annotations

import ctypes
import faulthandler
import logging
import os
import signal
import sys

from rltraining_api.contract import ENV_CODE_DIR, ENV_MANIFEST_DIR, STACKS_SIGNAL

PR_SET_PDEATHSIG = 1  # linux/prctl.h


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


def die_with(parent: int) -> None:
    """Makes the kernel kill this process when its parent dies, even if user code holds the GIL.

    Only Linux supports this. Ends this process if the parent has died already.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def describe_exit(code: int) -> str:
    """Describes an exit code of ``subprocess``, such as ``exit code 1`` or ``SIGKILL`` for -9."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
