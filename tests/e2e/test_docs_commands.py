"""The commands of the pages, run as written and in reading order, in a folder like a fresh clone of the repository.
Only training is shortened: an `rltrain` placed first on the PATH adds a stop rule to `rltrain run`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from docs_pages import ROOT, Command, blocks, commands

NOT_RUN = (
    (r"make setup|source \.venv/bin/activate", "the tests run in what they make"),
    (r"make (test|cluster|cluster-up|cluster-down|images)\b", "takes minutes, or builds images"),
    (r"make install-yaml\b", "needs helm: test_install_yaml.py"),
    (r"make wheels|pip install .*-c constraints\.txt", "the wheels: test_wheels.py"),
    (r"(docker|buildah|kind|helm|kubectl)\b", "no cluster, no builder: tests/cluster looks at the options"),
    (r"rltrain (submit|get|watch|logs|scale|suspend|resume|delete)\b", "a cluster's: tests/cluster"),
    (r"rltrain (report maze|compare lr|audit maze-run)\b", "a cluster's: tests/cluster"),
    (
        r"rltrain (run pong-|evaluate runs/pong/)",
        "takes minutes: test_examples.py trains a game for a while",
    ),
    (r"rltrain (run|chaos) zoo/hopper-ppo|cmp runs/calm/", "takes minutes, and needs MuJoCo"),
    (r"(python -m tests\.local_kubernetes|export (KUBECONFIG|REGISTRY))", "a cluster's: tests/cluster"),
)
"""Commands that are not run here, as patterns of their beginnings, and the reasons. All other commands are run."""

SHARED_RUN = "runs/quickstart"
QUICKSTART = "docs/quickstart.md"
FOLDERS = dict.fromkeys(
    ("docs/curves.md", "docs/policies.md", "docs/report.md", "docs/running.md"), QUICKSTART
)
"""Pages that use the run of another page, and therefore its folder. Every other page gets a fresh folder."""

STEPS = {"run": 3_000, "resume": 6_000}
"""Environment steps after which a run ends, and after which a resumed run ends."""
LIMIT = 900
"""Seconds after which a command counts as hung, even on a busy machine."""

SHIM = """#!/bin/bash
# rltrain with shorter training. The project of `rltrain init` ends only when it has learnt something.
case "$*" in
  "run "*--help*) ;;
  "run maze/"*) set -- "$@" --set stop.environmentSteps=null --set stop.meanReturn.atLeast=0.5 ;;
  "run "*--resume*) set -- "$@" --set stop.environmentSteps={resume} ;;
  "run "*--sweep*) set -- "$@" --set stop.environmentSteps={run} --seeds 1 --parallel 3 ;;
  "run "*) set -- "$@" --set stop.environmentSteps={run} ;;
esac
exec {rltrain} "$@"
"""


def folder_of(command: Command) -> str:
    return FOLDERS.get(command.page, command.page)


def reason_not_to_run(command: Command) -> str:
    return next((why for start, why in NOT_RUN if re.match(start, command.text)), "")


def to_run() -> list[Command]:
    """Returns the commands to run. Of commands that differ only in the run's name, returns the first, unless other
    pages use the run."""
    found: dict[str, Command] = {}
    for command in commands():
        makes_shared_run = f"--workdir {SHARED_RUN}" in command.text
        text = command.text if makes_shared_run else re.sub(r"\bruns/\w+", "runs/NAME", command.text)
        if not reason_not_to_run(command):
            found.setdefault(text, command)
    return list(found.values())


def checkout(folder: Path) -> Path:
    """Copies the files of a fresh clone with its virtual environment, and writes the `job.yaml` of the quickstart.
    Returns the folder of the programs."""
    (job,) = (block for block in blocks("yaml") if block.page == QUICKSTART)
    (folder / "job.yaml").write_text(job.text)
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "Makefile", folder)
    programs = Path(sys.executable).parent
    bin_ = folder / ".venv" / "bin"
    bin_.mkdir(parents=True)
    for program in programs.iterdir():
        if program.name not in ("rltrain", "python", "python3"):
            (bin_ / program.name).symlink_to(program)
    for name in ("python", "python3"):  # scripts: a symbolic link would not find its environment
        _write(bin_ / name, f'#!/bin/bash\nexec {programs / name} "$@"\n')
    _write(bin_ / "rltrain", SHIM.format(rltrain=programs / "rltrain", **STEPS))
    _write(bin_ / "make", f'#!/bin/bash\nexec {shutil.which("make")} -o .venv/.ready "$@"\n')
    return bin_


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


@pytest.mark.parametrize("folder", dict.fromkeys(folder_of(command) for command in to_run()))
def test_the_commands_of_a_page_work_as_written(tmp_path: Path, folder: str) -> None:
    """Also runs the commands of the pages that share its folder."""
    bin_ = checkout(tmp_path)
    for command in to_run():
        if folder_of(command) != folder:
            continue
        done = subprocess.run(
            ["bash", "-c", command.text],
            cwd=tmp_path,
            env=os.environ | {"PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        assert done.returncode == 0, (
            f"{command} ended with {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        )


def test_the_table_of_what_is_not_run_is_needed() -> None:
    for start, why in NOT_RUN:
        assert any(re.match(start, command.text) for command in commands()), (
            f"{start} ({why}): no page has it"
        )
