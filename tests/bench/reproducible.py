"""Compares the speed of reproducible runs with that of free runs with the same settings.

The runs of a pair follow each other, with one block for each sampler. Steps per second are those after the first quarter of the
curve, and the ratio is the median over the pairs.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from statistics import median

from tests.bench.table import print_table
from tests.bench.training import train

SLOW = """
import time

import gymnasium as gym


class Slow(gym.Wrapper):
    def step(self, action):
        until = time.perf_counter() + 100e-6
        result = self.env.step(action)
        while time.perf_counter() < until:
            pass
        return result


gym.register("Slow-v0", entry_point=lambda: Slow(gym.make("CartPole-v1").unwrapped), max_episode_steps=500)
"""
"""CartPole whose step takes 100 µs of a core. Written to slow_cartpole.py."""
IMPALA, PPO, DQN = (Path(f"examples/cartpole-{name}.yaml") for name in ("impala", "ppo", "dqn-apex"))
IS_SLOW = ("environment.id=slow_cartpole:Slow-v0", "environment.numEnvs=16")
RUNS: dict[str, tuple[Path, int, tuple[str, ...]]] = {
    "cartpole-impala": (IMPALA, 1, ("stop.environmentSteps=2500000",)),
    "cartpole-impala, 80 environments": (
        IMPALA,
        2,
        ("environment.numEnvs=80", "stop.environmentSteps=2500000"),
    ),
    "cartpole-ppo": (PPO, 2, ("stop.environmentSteps=300000",)),
    "cartpole-dqn-apex": (DQN, 2, ("stop.environmentSteps=200000",)),
    "slow CartPole, impala": (IMPALA, 1, (*IS_SLOW, "stop.environmentSteps=60000")),
    "slow CartPole, dqnApex": (
        DQN,
        1,
        (*IS_SLOW, "algorithm.dqnApex.replay.samplesPerInsert=1", "stop.environmentSteps=60000"),
    ),
}
"""By its name: the manifest, the number of samplers, and the changes."""


def run(seeds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "slow_cartpole.py").write_text(SLOW)
        sys.path.insert(0, folder)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
        rows = []
        for name, (manifest, samplers, changes) in RUNS.items():
            own = (*changes, "stop.meanReturn=null", f"sampler.replicas={samplers}")
            pairs = [
                (_rate(manifest, seed, own), _rate(manifest, seed, (*own, f"reproducible.blocks={samplers}")))
                for seed in range(min(seeds, 3))
            ]
            ratio = median(other / free for free, other in pairs)
            free, other = (f"{median(rates):,.0f}" for rates in zip(*pairs, strict=True))
            rows.append((name, samplers, free, other, f"{ratio:.2f}"))
    print_table(("run", "samplers", "steps/s, free", "steps/s, reproducible", "ratio, median of pairs"), rows)


def _rate(manifest: Path, seed: int, changes: tuple[str, ...]) -> float:
    """Returns the steps per second of a run after the first quarter of its curve."""
    with tempfile.TemporaryDirectory() as folder:
        train(manifest, seed, Path(folder), changes)
        points = [json.loads(line) for line in Path(folder, "progress.jsonl").read_text().splitlines()]
    begin, end = points[len(points) // 4], points[-1]
    return float((end["environmentSteps"] - begin["environmentSteps"]) / (end["seconds"] - begin["seconds"]))
