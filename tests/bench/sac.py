"""SAC on HalfCheetah-v5 with the published settings, one program at a time on all cores: steps/s, each with an update.

Compares this project to Stable-Baselines3, which is installed with pinned versions in a
separate virtual environment. Steps before the first update do not count.
"""

from __future__ import annotations

import json
import tempfile
from functools import partial
from pathlib import Path

from tests.bench.ppo import PEER_NAME, compare, peer_rate
from tests.bench.training import train

MANIFEST = Path(__file__).with_name("halfcheetah-sac.yaml")
PROGRAM = "sb3_sac.py"
SECONDS = 60


def run(seeds: int) -> None:
    compare(
        {
            f"{PEER_NAME}, 1 thread": partial(peer_rate, PROGRAM, SECONDS, 1),
            f"{PEER_NAME}, 2 threads": partial(peer_rate, PROGRAM, SECONDS, 2),
            "this project": _own,
        },
        seeds,
    )


def _own() -> float:
    with tempfile.TemporaryDirectory() as folder:
        train(MANIFEST, 0, Path(folder), [f"stop.seconds={SECONDS}"])
        lines = Path(folder, "progress.jsonl").read_text().splitlines()
    points = [point for point in map(json.loads, lines) if point["updates"] >= 100]  # without a warm-up
    first, last = points[0], points[-1]
    steps = last["environmentSteps"] - first["environmentSteps"]
    return float(steps / (last["seconds"] - first["seconds"]))
