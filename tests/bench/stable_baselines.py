"""Measures this project and Stable-Baselines3 on HalfCheetah-v5, one program at a time on all cores."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from tests.bench.table import print_table

ENVIRONMENT = "HalfCheetah-v5"
NAME = "Stable-Baselines3"
PACKAGES = ("stable-baselines3==2.9.2", "gymnasium[mujoco]==1.4.0", "torch==2.13.0")


def compare(program: str, seconds: float, own: Mapping[str, Callable[[], float]], seeds: int) -> None:
    """Prints steps/s, and the ratio to the faster one of Stable-Baselines3 with one thread and with two.

    Args:
        program: of Stable-Baselines3, in ``tests/bench/peers``.
        seconds: how long it is measured.
        own: measures each way of this project.
        seeds: number of measurements of each.
    """
    # Measure in turn, so that other load on the machine affects all alike.
    peers = {
        f"{NAME}, 1 thread": partial(_peer, program, seconds, 1),
        f"{NAME}, 2 threads": partial(_peer, program, seconds, 2),
    }
    ways = peers | dict(own)
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(seeds):
        for name, measure in ways.items():
            rates[name].append(measure())

    # Print the medians.
    medians = {name: statistics.median(found) for name, found in rates.items()}
    best = max(medians[name] for name in peers)
    print_table(
        (ENVIRONMENT, "steps/s: median (all)", f"times {NAME}"),
        [
            (
                name,
                f"{medians[name]:,.0f} ({', '.join(map('{:,.0f}'.format, sorted(found)))})",
                f"{medians[name] / best:.2f}",
            )
            for name, found in rates.items()
        ],
    )


def _peer(program: str, seconds: float, threads: int) -> float:
    """Returns the steps/s of a program, in a separate virtual environment with pinned versions."""
    uv = Path(sys.executable).with_name("uv")
    packages = [option for package in PACKAGES for option in ("--with", package)]
    command = [uv, "run", "--quiet", "--no-project", "--python", sys.executable, *packages, "python"]
    path = Path(__file__).with_name("peers") / program
    done = subprocess.run(
        [*command, path, ENVIRONMENT, str(seconds), str(threads)], check=True, capture_output=True, text=True
    )
    return float(done.stdout.split()[-1])
