"""The template's priority in the kernel."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

WITHOUT_RIGHTS = """
import ctypes, os, sys
PR_CAPBSET_DROP, CAP_SYS_ADMIN = 24, 21
ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_SYS_ADMIN)  # nothing to drop for who is not root
os.execv(sys.executable, [sys.executable, "-c", sys.argv[1]])
"""
SESSIONS = """
import os
from pathlib import Path
from rltraining_operator.local.warm import give_way
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        give_way(10)
        print(Path("/proc/self/autogroup").read_text(), end="", flush=True)
        os._exit(0)
for _ in range(3):
    os.wait()
"""


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="sessions have no priority here")
def test_each_of_several_that_begin_at_once_gives_way_without_being_root() -> None:
    """The kernel accepts only one such request per tenth of a second, over all processes."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_RIGHTS, SESSIONS],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert [line.partition(" ")[2] for line in done.stdout.splitlines()] == ["nice 10"] * 3, done.stderr
