"""A program that starts again with the library in front of libc."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import os, signal
from rltraining_trainer.tunnel.preload import is_preloaded, preload

signal.signal(signal.SIGTERM, lambda *_: os._exit(7 if is_preloaded() else 8))
start = os.execv

def be_killed(*arguments):
    os.kill(os.getpid(), signal.SIGTERM)
    start(*arguments)

os.execv = be_killed
preload()
"""


def test_a_signal_during_the_start_is_handled_afterwards() -> None:
    finished = subprocess.run([sys.executable, "-c", PROGRAM], timeout=60)
    assert finished.returncode == 7
