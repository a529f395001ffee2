"""`rltrain init`, and what its README.md says to do then."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from rltrain_command import COMMAND, rltrain


def test_a_new_project_learns_passes_its_tests_and_its_policy_can_be_used(tmp_path: Path) -> None:
    begun = rltrain(tmp_path, "init", "maze")
    assert begun.code == 0, begun
    project = tmp_path / "maze"
    tests = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"],
        cwd=project,
        env=os.environ | {"PATH": f"{COMMAND.parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    with tests:
        ended = rltrain(
            project, "run", "job.yaml", "--workdir", "runs/first", "--set", "stop.meanReturn.atLeast=0.5"
        )
        assert ended.code == 0, ended
        assert "stop.meanReturn is met" in ended.out
        said, _ = tests.communicate(timeout=60)
        assert tests.returncode == 0, said

    evaluated = rltrain(project, "evaluate", "runs/first", "--episodes", "20", "--video", "maze.mp4")
    assert evaluated.code == 0, evaluated
    assert (project / "maze.mp4").read_bytes()[4:8] == b"ftyp"
    assert rltrain(project, "export", "runs/first", "--format", "torchscript").code == 0
