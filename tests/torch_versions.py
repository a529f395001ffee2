"""``python -m tests.torch_versions``: tests the transport and the learner group with other versions
of torch.

Installs each version in a separate environment under runs/, with this checkout and everything else
as in constraints.txt, compiles the gate for it, runs the tests, and prints a line with the result.
The environments are removed at the end. A version that cannot be downloaded, for example without a
registry, is skipped with the reason.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rltraining_trainer.transport.torch_rpc import SUPPORTED_TORCH

from tests.repeat import NO_TEST, ROOT, last_line

RUNS = ROOT / "runs" / "torch-versions"
TESTS = (
    "tests/unit/transport",
    "tests/unit/group",
    "tests/integration/test_transport.py",
    "tests/integration/test_transport_fuzz.py",
    "tests/integration/test_transport_tables.py",
    "tests/integration/test_survival_strangers.py",
    "tests/integration/test_distributed_replay_rpc.py",
    "tests/integration/test_learner_group.py",
)
COMES_WITH_TORCH = re.compile(r"(torch|triton|setuptools|nvidia-.*|cuda-.*)==")
"""Pins that each version of torch chooses for itself."""
DOWNLOAD_FAILED = re.compile(r"Failed to (fetch|download)|network was disabled|No space left")
"""Errors of uv that are not this project's."""
FREE_BYTES_MIN = 10 * 10**9
"""What one environment and the packages that are downloaded for it can take."""


class NotInstalledError(Exception):
    """A version could not be downloaded. The message has the reason."""


class FailedError(Exception):
    """A command failed. The message names its log."""


def other_versions() -> list[str]:
    """Returns the supported minor versions but the pinned one, oldest first."""
    (major, oldest), (_, newest) = SUPPORTED_TORCH
    pinned = re.search(r"^torch==(\d+\.\d+)\.", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned is not None
    versions = [f"{major}.{minor}" for minor in range(oldest, newest + 1)]
    return [version for version in versions if version != pinned[1]]


def install(version: str, environment: Path, log: Path) -> None:
    """Makes an environment with this version of torch and this checkout."""
    if (free := shutil.disk_usage(RUNS).free) < FREE_BYTES_MIN:
        raise NotInstalledError(
            f"{free / 1e9:.0f} GB are free on the disk, and it needs {FREE_BYTES_MIN / 1e9:.0f}"
        )
    constraints = RUNS / "constraints.txt"
    pins = (ROOT / "constraints.txt").read_text().splitlines(keepends=True)
    constraints.write_text("".join(pin for pin in pins if not COMES_WITH_TORCH.match(pin)))
    uv = str(Path(sys.executable).with_name("uv"))
    own_cache = {"UV_CACHE_DIR": str(RUNS / "cache")}
    packages = [f"torch=={version}.*", "-r", "tests/requirements.txt"]
    for room in ("crds", "operator", "trainer_image"):
        packages += ["-e", f"./{room}"]
    run([uv, "venv", "-q", "--python", sys.executable, str(environment)], log, own_cache)
    try:
        pip = [uv, "pip", "install", "-q", "--python", str(environment / "bin/python")]
        run([*pip, "-c", str(constraints), *packages], log, own_cache)
    except FailedError:
        output = log.read_text(errors="replace")
        if DOWNLOAD_FAILED.search(output):
            raise NotInstalledError(output.strip()) from None
        raise


def check(version: str, environment: Path, log: Path) -> None:
    """Compiles the gate and the tests' own client, and runs the tests."""
    python = str(environment / "bin/python")
    run([python, "-c", f"import torch; assert torch.__version__.startswith('{version}.')"], log)
    run([python, "-m", "rltraining_trainer.transport.gate"], log)
    # Compiling takes 15 s of a core, which on a busy machine is more than the test that needs it has.
    run([python, "-c", "import raw_call; raw_call.compiled()"], log, {"PYTHONPATH": "tests/integration"})
    workers = str((os.cpu_count() or 1) + 2)
    run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", workers, *TESTS], log)
    if last_line(log) == NO_TEST:
        raise FailedError(NO_TEST)


def run(command: Sequence[str], log: Path, variables: Mapping[str, str] | None = None) -> None:
    """Runs a command in the checkout and logs its output. Raises FailedError if it fails."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RLTRAINING_SOAK": "1", **(variables or {})}
    with log.open("a") as output:
        done = subprocess.run(command, cwd=ROOT, env=environment, stdout=output, stderr=output, check=False)
    if done.returncode:
        raise FailedError(f"see {log.relative_to(ROOT)}")


def try_version(version: str) -> bool:
    """Installs and tests a version, and prints the result. Returns False if it failed."""
    environment, log, began = RUNS / version, RUNS / f"{version}.log", time.monotonic()
    shutil.rmtree(environment, ignore_errors=True)
    log.write_text("")
    passed = True
    try:
        install(version, environment, log)
        check(version, environment, log)
        verdict = "passed"
    except NotInstalledError as reason:
        verdict = f"skipped: {reason}"
    except FailedError as error:
        passed, verdict = False, f"FAILED, {error}"
    finally:
        shutil.rmtree(environment, ignore_errors=True)
    print(f"torch {version}: {verdict} ({last_line(log)}; {time.monotonic() - began:.0f} s)", flush=True)
    return passed


def main() -> int:
    others = other_versions()
    parser = argparse.ArgumentParser(prog="python -m tests.torch_versions", description=__doc__)
    parser.add_argument(
        "version", nargs="*", help=f"minor versions, such as {others[0]} (default: the oldest and the newest)"
    )
    parser.add_argument("--all", action="store_true", help=f"test all of {', '.join(others)}")
    arguments = parser.parse_args()
    RUNS.mkdir(parents=True, exist_ok=True)
    try:
        versions = others if arguments.all else arguments.version or [others[0], others[-1]]
        return not all([try_version(version) for version in versions])
    finally:
        shutil.rmtree(RUNS / "cache", ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
