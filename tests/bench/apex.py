"""Ape-X, learning, over RPC: DQN on CartPole-v1 and DPG on Pendulum-v1, with the stop rules of the examples.

CartPole is solved when the last 100 training episodes of the greedier sampler return 475 on average.
Pendulum is solved when the smoothed return (.9 of the old, .1 of the new) is at least -150 five
times in a row.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from tests.bench.table import print_table, thousands
from tests.bench.training import train

MANIFESTS = (Path("examples/cartpole-dqn-apex.yaml"), Path("examples/pendulum-ddpg-apex.yaml"))


def run(seeds: int) -> None:
    for manifest in MANIFESTS:
        print(f"\n{manifest.stem}\n")
        _report(manifest, seeds)


def _report(manifest: Path, seeds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        results = [train(manifest, seed, Path(folder) / str(seed), ()) for seed in range(seeds)]
    rows = [
        (
            result.seed,
            f"{result.seconds:.1f}" if result.solved else "never",
            f"{result.steps:,}",
            thousands(result.steps_per_second),
            f"{result.last['updates'] / result.seconds:.0f}",
            f"{result.last['replay/ratio']:.1f}",
            f"{result.last['policyLag']:.1f}",
            result.cpu,
        )
        for result in results
    ]
    print_table(("seed", "s", "steps", "steps/s", "updates/s", "replay ratio", "policy lag", "CPU"), rows)
    seconds = [result.seconds if result.solved else float("inf") for result in results]
    rate = statistics.median(result.steps_per_second for result in results)
    print(f"\nmedian of {seeds}: {statistics.median(seconds):.1f} s, {thousands(rate)} steps/s")
