"""The commands of the pages, as they stand there, one after the other in one folder, as somebody would type them who reads all
pages. Only training is shortened: an `rltrain` that comes first on the PATH adds a stop rule to `rltrain run`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from docs_pages import ROOT, Command, commands

NOT_RUN = (
    (r"make setup|source \.venv/bin/activate", "the tests run in what they make"),
    (r"make (test|cluster-up|cluster-down|images)\b", "takes minutes, or builds images"),
    (r"(docker|buildah|kind|helm|kubectl)\b", "no cluster, no builder: tests/cluster looks at the options"),
    (r"rltrain (submit|get|watch|logs|scale|suspend|resume|delete)\b", "a cluster's: tests/cluster"),
    (r"rltrain (report maze|compare lr)\b", "a cluster's: tests/cluster"),
    (
        r"rltrain (run examples/pong-|evaluate runs/pong/)",
        "takes minutes: test_examples.py trains a game for a while",
    ),
    (r"(python -m tests\.cluster|export (KUBECONFIG|REGISTRY))", "a cluster's: tests/cluster"),
)
"""Commands that are not run here: how they begin, and why. Whatever is not in this table is run."""

STEPS = {"run": 3_000, "resume": 6_000}
"""Environment steps after which a run is over, and after which one that goes on is."""
LIMIT = 120

SHIM = """#!/bin/bash
# rltrain, but for runs that are over soon.
case "$*" in
  "run "*--help*) ;;
  "run "*--resume*) set -- "$@" --set stop.environmentSteps={resume} ;;
  "run "*--sweep*) set -- "$@" --set stop.environmentSteps={run} --seeds 1 ;;
  "run "*) set -- "$@" --set stop.environmentSteps={run} ;;
esac
exec {rltrain} "$@"
"""


def reason_not_to_run(command: Command) -> str:
    return next((why for start, why in NOT_RUN if re.match(start, command.text)), "")


def to_run() -> list[Command]:
    """Also those that stand in several pages: each must work for somebody who has typed the ones before it."""
    return [command for command in commands() if not reason_not_to_run(command)]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what a user has who has cloned the repository and made the environment."""
    folder = tmp_path_factory.mktemp("checkout")
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "Makefile", folder)
    programs = Path(sys.executable).parent
    bin_ = folder / ".venv" / "bin"
    bin_.mkdir(parents=True)
    for program in programs.iterdir():
        if program.name not in ("rltrain", "python", "python3"):
            (bin_ / program.name).symlink_to(program)
    for name in ("python", "python3"):  # one that knows its environment, which a link does not
        _write(bin_ / name, f'#!/bin/bash\nexec {programs / name} "$@"\n')
    _write(bin_ / "rltrain", SHIM.format(rltrain=programs / "rltrain", **STEPS))
    _write(bin_ / "make", f'#!/bin/bash\nexec {shutil.which("make")} -o .venv/.ready "$@"\n')
    return folder


@pytest.mark.parametrize("command", to_run(), ids=str)
def test_a_command_of_the_pages_works_as_written(checkout: Path, command: Command) -> None:
    path = f"{checkout / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command.text],
        cwd=checkout,
        env=os.environ | {"PATH": path, "OMP_NUM_THREADS": "1"},
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


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)
