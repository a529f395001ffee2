"""`rltrain run` given manifests that are wrong, and killed while it trains."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Awaitable
from pathlib import Path

import psutil
import pytest
from local_cluster_run import gone

RLTRAIN = Path(sys.executable).with_name("rltrain")
LEFT_SECONDS = 2.0
"""After which nothing of a killed run may be alive."""

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

WRONG = """\
apiVersion: rltraining.dev/v1alpha1
kind: RLTrainingJob
metadata: {name: demo}
spec:
  algorithm: {impala: {learningRat: 0.001}}
  environment: {id: CartPole-v1, numEnvs: eight}
  sampler: [1]
  stop: {environmentSteps: 1000}
  checkpoint: {everySeconds: -1}
  speed: high
"""

REFUSED = {
    "in five places": (
        WRONG,
        [
            r"spec\.algorithm\.impala\.learningRat: is not a known field: did you mean learningRate\?",
            r"spec\.environment\.numEnvs: .*eight",
            r"spec\.sampler: ",
            r"spec\.checkpoint\.everySeconds: .*-1",
            r"spec\.speed: is not a known field",
        ],
    ),
    "two algorithms": (
        MANIFEST.replace("{impala:", "{a2c: {}, impala:"),
        [r"spec\.algorithm: exactly one algorithm is needed, found two: a2c and impala"],
    ),
    "no YAML": (MANIFEST.replace("{mlp:", "{mlp: {"), [r".*line \d+"]),
}


@pytest.mark.timeout(30)
@pytest.mark.parametrize(("manifest", "sentences"), REFUSED.values(), ids=REFUSED)
def test_what_is_wrong_in_a_manifest_is_said_in_a_sentence_each(
    tmp_path: Path, manifest: str, sentences: list[str]
) -> None:
    (tmp_path / "job.yaml").write_text(manifest)
    ended = subprocess.run(
        [RLTRAIN, "run", "job.yaml", "--workdir", "run"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (2, ""), ended
    lines = sorted(ended.stderr.splitlines())
    assert len(lines) == len(sentences), ended.stderr
    for line, sentence in zip(lines, sorted(sentences), strict=True):
        assert re.match(rf"error: job\.yaml: {sentence}", line), ended.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["job.yaml"]


class Command:
    """`rltrain run` in a folder, with the output that it has given so far."""

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
        """How many steps the next line of a job that runs tells: `00:03  Running  412,160 steps …`"""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.output += line
            if told := re.search(r"Running .*?([\d,]+) steps", line):
                return int(told[1].replace(",", ""))
        raise AssertionError(f"it ended with {self._process.wait()}:\n{self.output}")

    def kill(self) -> None:
        """SIGKILL. All that it had started ends with it."""
        left = [process.pid for process in psutil.Process(self._process.pid).children(recursive=True)]
        assert len(left) >= 3, "the template, the learner and the sampler"
        self._process.kill()
        self._process.communicate()
        asyncio.run(within(LEFT_SECONDS, gone(left)))


@pytest.mark.timeout(90)
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


async def within(seconds: float, work: Awaitable[None]) -> None:
    async with asyncio.timeout(seconds):
        await work


def newest_checkpoint(run: Path) -> int:
    """Its step, in environment steps; -1 while there is none."""
    steps = (int(path.parent.name.split("-")[1]) for path in run.glob("checkpoints/step-*/complete.json"))
    return max(steps, default=-1)
