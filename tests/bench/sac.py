"""SAC on HalfCheetah-v5 with the published settings, beside Stable-Baselines3.

Each step comes with an update. Steps before the first 100 updates do not count.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from tests.bench.stable_baselines import compare
from tests.bench.training import train

MANIFEST = Path(__file__).with_name("halfcheetah-sac.yaml")
SECONDS = 60
WARM_UP = 100
"""Updates that are not measured."""


def run(seeds: int) -> None:
    compare("sb3_sac.py", SECONDS, {"this project": _own}, seeds)


def _own() -> float:
    with tempfile.TemporaryDirectory() as folder:
        train(MANIFEST, 0, Path(folder), [f"stop.seconds={SECONDS}"])
        lines = Path(folder, "progress.jsonl").read_text().splitlines()
    points = [point for point in map(json.loads, lines) if point["updates"] >= WARM_UP]
    first, last = points[0], points[-1]
    steps = last["environmentSteps"] - first["environmentSteps"]
    return float(steps / (last["seconds"] - first["seconds"]))
