"""The `rltrain` command as people start it: a process of its own, its output not a terminal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

COMMAND = Path(sys.executable).with_name("rltrain")
SECONDS_MAX = 600
"""After which a command counts as hung. Two runs in turn took 6 s alone and 26 s beside four busy programs."""

MANIFEST = """
apiVersion: rltraining.dev/v1alpha1
kind: RLTrainingJob
metadata: {name: cartpole}
spec:
  algorithm: {impala: {}}
  environment: {id: CartPole-v1}
  stop: {environmentSteps: 10000}
"""


@dataclass
class Ended:
    """How a command ended, and all that it printed."""

    code: int
    out: str
    err: str


@dataclass
class Command:
    """A command that runs."""

    process: subprocess.Popen[str]
    folder: Path
    """Its working directory."""
    lines: list[str] = field(default_factory=list)
    """Of its output, so far."""

    def wait_for(self, *words: str) -> str:
        """The next line that holds all these words; AssertionError when the command ends without one."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            if all(word in line for word in words):
                return line
        raise AssertionError(f"no line with {words}: {self.finish()}")

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def finish(self) -> Ended:
        try:
            out, err = self.process.communicate(timeout=SECONDS_MAX)
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"it did not end; {self._story()}") from error
        return Ended(self.process.returncode, "".join(self.lines) + out, err)

    def _story(self) -> str:
        """Of a command that hangs: its processes, and the last lines of every log."""
        children = psutil.Process(self.process.pid).children(recursive=True)
        running = [f"{child.pid} {child.status()} {' '.join(child.cmdline())}" for child in children]
        logs = [f"{log}:\n{log.read_text()[-1000:]}" for log in self.folder.rglob("*.log")]
        return "\n".join(
            [f"command is {psutil.Process(self.process.pid).status()}", *running, *logs, *self.lines[-3:]]
        )


def _hear_ctrl_c() -> None:
    """A shell lets what it starts in the background ignore SIGINT, and that is inherited."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def started(folder: Path, *arguments: str | Path) -> Iterator[Command]:
    """Start `rltrain` in a folder; if it still runs at the end, it is killed."""
    process = subprocess.Popen(
        [COMMAND, *map(str, arguments)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        preexec_fn=_hear_ctrl_c,
    )
    with process:
        try:
            yield Command(process, folder)
        finally:
            process.kill()


def rltrain(folder: Path, *arguments: str | Path) -> Ended:
    """Run a command to its end."""
    with started(folder, *arguments) as command:
        return command.finish()
