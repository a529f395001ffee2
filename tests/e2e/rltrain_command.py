"""Runs the `rltrain` command as users do: in a separate process whose output is not a terminal."""

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
"""Seconds after which a command counts as hung.

Two runs in turn took 6 s alone and 26 s beside four busy programs.
"""

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
    """A command's exit code and output."""

    code: int
    out: str
    err: str


@dataclass
class Command:
    """A running command."""

    process: subprocess.Popen[str]
    folder: Path
    """The working directory."""
    lines: list[str] = field(default_factory=list)
    """The output so far."""

    def wait_for(self, *words: str) -> str:
        """Returns the next line with all these words. Raises AssertionError if the command ends first."""
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
        """Returns the processes of a hung command, and the last lines of every log."""
        children = psutil.Process(self.process.pid).children(recursive=True)
        running = [f"{child.pid} {child.status()} {' '.join(child.cmdline())}" for child in children]
        logs = [f"{log}:\n{log.read_text()[-1000:]}" for log in self.folder.rglob("*.log")]
        return "\n".join(
            [f"command is {psutil.Process(self.process.pid).status()}", *running, *logs, *self.lines[-3:]]
        )


def _hear_ctrl_c() -> None:
    """Restores the default SIGINT handler.

    A shell starts background jobs with SIGINT ignored, and child processes inherit that setting.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def started(folder: Path, *arguments: str | Path) -> Iterator[Command]:
    """Starts `rltrain` in a folder, and kills it at the end of the block if it still runs."""
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
    """Runs a command to its end."""
    with started(folder, *arguments) as command:
        return command.finish()
