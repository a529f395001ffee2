"""The end of a fork of the warm template: like an interpreter's end, without freeing its memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import atexit, sys, threading, time
from rltraining_operator.local.warm import end

def last():
    time.sleep(0.05)
    print("thread")

atexit.register(print, "exit handler")
sys.stdout.write("not flushed\\n")
file = open(sys.argv[1], "w")
file.write("neither is this")
threading.Thread(target=last).start()
end(65)
"""


def test_threads_exit_handlers_and_files_are_completed(tmp_path: Path) -> None:
    file = tmp_path / "file"
    command = [sys.executable, "-c", PROGRAM, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (65, "not flushed\nthread\nexit handler\n", "")
    assert file.read_text() == "neither is this"
