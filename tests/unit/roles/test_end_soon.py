"""A process ends with its exit code, although user code would keep it running."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import threading
import time

from rltraining_trainer.process import end_soon

threading.Thread(target=time.sleep, args=(600,), name="viewer").start()
print("the result", end="")
end_soon(7, seconds=0.1)
"""


def test_a_thread_of_user_code_does_not_keep_a_process() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (7, "the result")
    assert (
        "user code still runs, in a child process, an exit handler or a thread that is no daemon (viewer)"
        in done.stderr
    )
