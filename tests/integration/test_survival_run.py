"""`rltrain run` is killed while it trains."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import psutil
from local_cluster_run import gone

RLTRAIN = Path(sys.executable).with_name("rltrain")

MANIFEST = """\
apiVersion: rltraining.dev/v1alpha1
kind: RLTrainingJob
metadata: {name: demo}
spec:
  algorithm: {impala: {learningRate: 0.001}}
  environment: {id: CartPole-v1, numEnvs: 8}
  network: {mlp: {hiddenSizes: [16]}}
  sampler: {replicas: 1}
  stop: {environmentSteps: 1000000000}
  checkpoint: {everySeconds: 1}
"""


class Command:
    """A running `rltrain run` in a folder, with its output so far."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.output = ""
        self._process = subprocess.Popen(
            [RLTRAIN, "run", *arguments],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )

    def wait_for_steps(self) -> int:
        """Returns the number of steps in the job's next progress line: `00:03  Running  412,160 steps …`"""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.output += line
            if told := re.search(r"Running .*?([\d,]+) steps", line):
                return int(told[1].replace(",", ""))
        raise AssertionError(f"it ended with {self._process.wait()}:\n{self.output}")

    def kill(self) -> None:
        """Sends SIGKILL, and waits for the end of all child processes."""
        left = [process.pid for process in psutil.Process(self._process.pid).children(recursive=True)]
        assert len(left) >= 3, "the template, the learner and the sampler"
        self._process.kill()
        self._process.communicate()
        asyncio.run(gone(left))


def test_a_killed_run_leaves_no_process_and_can_be_resumed(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(MANIFEST)
    run = tmp_path / "run"
    command = Command(tmp_path, "job.yaml", "--workdir", "run")
    while newest_checkpoint(run) <= 0:
        command.wait_for_steps()
    command.kill()

    checkpoint = newest_checkpoint(run)
    command = Command(tmp_path, "--resume", "--workdir", "run")
    assert command.wait_for_steps() >= checkpoint, command.output
    command.kill()


def newest_checkpoint(run: Path) -> int:
    """Returns the newest checkpoint's step, in environment steps, or -1 without a checkpoint."""
    steps = (int(path.parent.name.split("-")[1]) for path in run.glob("checkpoints/step-*/complete.json"))
    return max(steps, default=-1)
