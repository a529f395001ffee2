"""Child processes: a bond to the parent's life, and descriptions of how processes ended."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h


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
