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
from pathlib import Path

from tests.bench.table import print_table
from tests.bench.training import train

MANIFEST = Path(__file__).with_name("halfcheetah-ppo.yaml")
PEER = Path(__file__).with_name("peers") / "sb3_ppo.py"
PACKAGES = ("stable-baselines3==2.9.2", "gymnasium[mujoco]==1.4.0", "torch==2.13.0")
ENVIRONMENT = "HalfCheetah-v5"
SECONDS = 20


def run(seeds: int) -> None:
    ways: dict[str, Callable[[], float]] = {
        "Stable-Baselines3, 1 thread": lambda: _peer(1),
        "Stable-Baselines3, 2 threads": lambda: _peer(2),
        "gradients: Samplers": lambda: _own("Samplers"),
        "gradients: Learner": lambda: _own("Learner"),
    }
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(seeds):  # in turn, so that other load on the machine affects all alike
        for name, measure in ways.items():
            rates[name].append(measure())
    medians = {name: statistics.median(found) for name, found in rates.items()}
    peer = max(medians[name] for name in ways if name.startswith("Stable"))
    print_table(
        ("HalfCheetah-v5", "steps/s: median (all)", "times Stable-Baselines3"),
        [
            (
                name,
                f"{medians[name]:,.0f} ({', '.join(map('{:,.0f}'.format, sorted(found)))})",
                f"{medians[name] / peer:.2f}",
            )
            for name, found in rates.items()
        ],
    )


def _own(gradients: str) -> float:
    overrides = [f"algorithm.ppo.gradients={gradients}", f"stop.seconds={SECONDS}"]
    with tempfile.TemporaryDirectory() as folder:
        return train(MANIFEST, 0, Path(folder), overrides).steps_per_second


def _peer(threads: int) -> float:
    uv = Path(sys.executable).with_name("uv")
    packages = [option for package in PACKAGES for option in ("--with", package)]
    command = [uv, "run", "--quiet", "--no-project", "--python", sys.executable, *packages, "python", PEER]
    done = subprocess.run(
        [*command, ENVIRONMENT, str(SECONDS), str(threads)], check=True, capture_output=True, text=True
    )
    return float(done.stdout.split()[-1])
