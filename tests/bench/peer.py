"""Runs programs of other libraries, each in a separate environment with pinned versions."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

PROGRAMS = Path(__file__).with_name("peers")
STARTUP = 180
"""Seconds that a library may take to install and start."""
T = TypeVar("T")


@dataclass(frozen=True)
class Peer:
    name: str
    program: str
    """A file of tests/bench/peers."""
    packages: tuple[str, ...]
    options: tuple[str, ...] = ()
    """Arguments of the program, after the seed and the limit."""


def run_peer(peer: Peer, seed: int, limit: float, startup: float = STARTUP) -> dict[str, Any]:
    """Runs a program, and returns the last JSON object that it prints.

    Args:
        limit: seconds after which the program ends its training.
        startup: further seconds, after which the program is ended.

    Raises:
        RuntimeError: There is no result.
    """
    uv = str(Path(sys.executable).with_name("uv"))
    packages = [option for package in peer.packages for option in ("--with", package)]
    command = [uv, "run", "--quiet", "--no-project", "--python", sys.executable, *packages, "python"]
    command += [str(PROGRAMS / peer.program), str(seed), str(limit), *peer.options]
    # Write the output to files, because processes that outlive the program keep a pipe open.
    with tempfile.TemporaryDirectory() as folder:
        output, errors = Path(folder, "output"), Path(folder, "errors")
        with output.open("w") as out, errors.open("w") as err:
            process = subprocess.Popen(
                command,
                stdout=out,
                stderr=err,
                cwd=folder,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
                start_new_session=True,
            )
            try:
                process.wait(limit + startup)
            except subprocess.TimeoutExpired:
                raise RuntimeError(f"no result after {limit + startup:g} s") from None
            finally:
                _end_group(process.pid)
        lines = [line for line in output.read_text().splitlines() if line.startswith('{"')]
        if not lines:
            raise RuntimeError((errors.read_text().strip().splitlines() or ["no output"])[-1])
        result: dict[str, Any] = json.loads(lines[-1])
        return result


def _end_group(group: int) -> None:
    """Ends the processes that a program has left running."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def measure_in_turn(
    ways: Mapping[str, Callable[[int], T]], seeds: int
) -> tuple[dict[str, list[T]], dict[str, str]]:
    """Measures each way with each seed, in turn, so that other load on the machine affects all alike.

    Returns:
        Returns the results of each way, and the reason of each failure. A way that failed is not tried again.
    """
    found: dict[str, list[T]] = {}
    failures: dict[str, str] = {}
    for seed in range(seeds):
        for name, measure in ways.items():
            if name in failures:
                continue
            try:
                found.setdefault(name, []).append(measure(seed))
            except RuntimeError as error:
                failures[name] = str(error)
    return {name: results for name, results in found.items() if results}, failures


def print_left_out(failures: Mapping[str, str]) -> None:
    for name, failure in failures.items():
        print(f"{name} is left out: {failure}")
