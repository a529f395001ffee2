"""The wheels of `make wheels`, installed into new virtual environments outside of the clone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from docs_pages import ROOT, commands
from rltrain_command import SECONDS_MAX, Ended

from tests.torch_versions import DOWNLOAD_FAILED

PROGRAMS = Path(sys.executable).parent
UV = PROGRAMS / "uv"
LOCAL_COMMANDS = r"rltrain (run cartpole-impala --workdir|evaluate runs/first/policy --episodes|report) "
"""The commands of the README that the test runs with the extra `local`."""
IMPORT_CLUSTER_COMMANDS = """
import importlib, pkgutil, rltraining.cluster, rltraining.sdk
for package in (rltraining.cluster, rltraining.sdk):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
"""
"""A program that imports what the commands on a cluster need."""


def shell(folder: Path, command: str, programs: Path = PROGRAMS) -> Ended:
    """Runs a command in a folder, with these programs first on the PATH."""
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        # uv writes no bytecode, and without it each process would compile torch.
        env=os.environ
        | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "PYTHONDONTWRITEBYTECODE": ""},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def succeeded(folder: Path, command: str, programs: Path = PROGRAMS) -> str:
    """Runs a command that must succeed. Returns its output. Skips the test if packages cannot be downloaded."""
    ended = shell(folder, command, programs)
    if ended.code and DOWNLOAD_FAILED.search(ended.err):
        pytest.skip(f"packages cannot be downloaded: {ended.err.strip().splitlines()[-1]}")
    assert ended.code == 0, (command, ended)
    return ended.out


def installed(environment: Path, what: str) -> Path:
    """Installs wheels in the tested versions of all other packages. Returns the folder of their programs."""
    succeeded(ROOT, f"{UV} venv -q --python {sys.executable} {environment}")
    succeeded(ROOT, f"{UV} pip install -q --python {environment}/bin/python -c constraints.txt {what}")
    return environment / "bin"


def files(folder: Path) -> set[str]:
    """Returns the paths of the files in a folder, but for compiled ones."""
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    return {path for path in found if "__pycache__" not in path}


@pytest.mark.skipif(not UV.exists(), reason="uv is not installed beside Python: make setup installs it")
def test_the_wheels_are_a_light_client_and_with_an_extra_train_here(tmp_path: Path) -> None:
    # Build the distributions, and check them as a package index does.
    wheels, outside = tmp_path / "dist", tmp_path / "outside"
    outside.mkdir()
    succeeded(ROOT, f"make -o {PROGRAMS.parent}/.ready wheels VENV={PROGRAMS.parent} DIST={wheels}")
    assert len(list(wheels.glob("*.whl"))) == len(list(wheels.glob("*.tar.gz"))) == 4

    # Without extras, the client has no torch, knows the examples, and names the remedy.
    light = installed(tmp_path / "light", f"{wheels}/rltraining{{,_api,_operator}}-*.whl")
    packages = succeeded(outside, f"{UV} pip list -q --python {light}/python")
    assert not re.search(r"^(torch|numpy|gymnasium|matplotlib|rltraining-trainer) ", packages, re.MULTILINE)
    assert "Commands" in succeeded(outside, "rltrain --help", light)
    listed = succeeded(outside, "rltrain examples", light)
    names = [line.split()[0] for line in listed.splitlines()]
    (examples,) = light.parent.glob("lib/*/site-packages/rltraining/examples")
    kept = files(examples)
    assert kept == files(ROOT / "examples")
    assert {f"{name}.yaml" for name in names} == {name for name in kept if name.endswith(".yaml")}
    succeeded(outside, f"rltrain validate {' '.join(names)}", light)
    succeeded(outside, f"python -c '{IMPORT_CLUSTER_COMMANDS}'", light)
    refused = shell(outside, "rltrain run cartpole-impala", light)
    assert refused.code == 2
    assert refused.err.endswith("pip install -c constraints.txt dist/*.whl 'rltraining[local]'\n")
    assert len(refused.err.splitlines()) == 1

    # With the extra, the commands of the README train and play.
    local = installed(tmp_path / "local", f"{wheels}/*.whl 'rltraining[local]'")
    ours = [
        each.text for each in commands() if each.page == "README.md" and re.match(LOCAL_COMMANDS, each.text)
    ]
    assert len(ours) == 3
    for command in ours:
        shorter = " --set stop.environmentSteps=2000" if " run " in command else ""
        succeeded(outside, command + shorter, local)
    assert (outside / "runs" / "first" / "policy" / "policy.json").is_file()
