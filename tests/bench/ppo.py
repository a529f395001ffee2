"""PPO on HalfCheetah-v5 with the published settings for MuJoCo, one program at a time on all cores.

Compares this project, with gradients at the learner and at the samplers, to Stable-Baselines3, which is
installed with pinned versions in a separate virtual environment. Steps/s include rollouts and updates.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.bench.table import print_table
from tests.bench.training import train

MANIFEST = Path(__file__).with_name("halfcheetah-ppo.yaml")
PEER_NAME = "Stable-Baselines3"
PACKAGES = ("stable-baselines3==2.9.2", "gymnasium[mujoco]==1.4.0", "torch==2.13.0")
ENVIRONMENT = "HalfCheetah-v5"
PROGRAM = "sb3_ppo.py"
SECONDS = 20


def run(seeds: int) -> None:
    compare(
        {
            f"{PEER_NAME}, 1 thread": partial(peer_rate, PROGRAM, SECONDS, 1),
            f"{PEER_NAME}, 2 threads": partial(peer_rate, PROGRAM, SECONDS, 2),
            "gradients: Samplers": partial(_own, "Samplers"),
            "gradients: Learner": partial(_own, "Learner"),
        },
        seeds,
    )


def compare(ways: dict[str, Callable[[], float]], seeds: int) -> None:
    """Measures the steps/s of each way ``seeds`` times, and prints them beside the best of ``PEER_NAME``."""
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(seeds):  # in turn, so that other load on the machine affects all alike
        for name, measure in ways.items():
            rates[name].append(measure())
    medians = {name: statistics.median(found) for name, found in rates.items()}
    peer = max(medians[name] for name in ways if name.startswith(PEER_NAME))
    print_table(
        (ENVIRONMENT, "steps/s: median (all)", f"times {PEER_NAME}"),
        [
            (
                name,
                f"{medians[name]:,.0f} ({', '.join(map('{:,.0f}'.format, sorted(found)))})",
                f"{medians[name] / peer:.2f}",
            )
            for name, found in rates.items()
        ],
    )


def peer_rate(program: str, seconds: float, threads: int) -> float:
    """Returns the steps/s of a program of Stable-Baselines3 in ``tests/bench/peers``."""
    uv = Path(sys.executable).with_name("uv")
    packages = [option for package in PACKAGES for option in ("--with", package)]
    command = [uv, "run", "--quiet", "--no-project", "--python", sys.executable, *packages, "python"]
    path = Path(__file__).with_name("peers") / program
    done = subprocess.run(
        [*command, path, ENVIRONMENT, str(seconds), str(threads)], check=True, capture_output=True, text=True
    )
    return float(done.stdout.split()[-1])


def _own(gradients: str) -> float:
    overrides = [f"algorithm.ppo.gradients={gradients}", f"stop.seconds={SECONDS}"]
    with tempfile.TemporaryDirectory() as folder:
        return train(MANIFEST, 0, Path(folder), overrides).steps_per_second
