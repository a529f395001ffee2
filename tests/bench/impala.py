"""IMPALA on CartPole-v1, learning, over RPC.

Solved means that the mean return of the last 100 training episodes is at least 475, as in `peers`.
The examples themselves train a little longer. Seconds count from the first unroll that reaches the
learner, plus the time to collect one unroll.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.bench.table import print_table, thousands
from tests.bench.training import train

MANIFEST = Path("examples/cartpole-impala.yaml")
FEWER_STEPS = Path("examples/zoo/cartpole-impala.yaml")
"""64-64 units, and three updates of each batch with a clipped objective."""
LARGER = "network.mlp.hiddenSizes=[64,64]"
SPEEDS: dict[str, tuple[Path, list[str]]] = {
    "64-64 units": (MANIFEST, [LARGER]),
    f"64-64 units, {FEWER_STEPS}": (FEWER_STEPS, []),
    "32-32 units, 2,048 environments": (MANIFEST, ["environment.numEnvs=2048"]),
    "64-64 units, 2,048 environments": (MANIFEST, [LARGER, "environment.numEnvs=2048"]),
}
"""Manifests and their changes, of which the speed is measured."""
EPISODES = 100
SUSTAINED = 10


def run(seeds: int) -> None:
    solved = f"stop.meanReturn={{atLeast: 475, episodes: {EPISODES}}}"
    for samplers in (2, 1):
        print(f"{samplers} samplers\n" if samplers > 1 else "\n1 sampler\n")
        report(MANIFEST, seeds, [f"sampler.replicas={samplers}", solved])
        rate = _sustained(MANIFEST, [f"sampler.replicas={samplers}"])
        print(f"continuing for {SUSTAINED} s: {thousands(rate)} steps/s")
    print(f"\n{FEWER_STEPS}\n")
    report(FEWER_STEPS, seeds, [solved])
    print("\nLarger networks and more environments\n")
    rows = [
        (name, thousands(_sustained(manifest, overrides))) for name, (manifest, overrides) in SPEEDS.items()
    ]
    print_table((f"{SUSTAINED} s of training", "steps/s"), rows)


def _sustained(manifest: Path, overrides: Sequence[str]) -> float:
    """Returns the steps per second of a run that continues after it is solved.

    The slower first unrolls then have less weight.
    """
    duration = ["stop.meanReturn=null", "stop.environmentSteps=1e9", f"stop.seconds={SUSTAINED}"]
    with tempfile.TemporaryDirectory() as folder:
        result = train(manifest, 0, Path(folder), [*overrides, *duration])
    return result.steps / result.seconds_with_first_data


def report(manifest: Path, seeds: int, overrides: Sequence[str]) -> None:
    """Trains a manifest, changed by ``overrides``, with `seeds` seeds and prints one row per seed."""
    with tempfile.TemporaryDirectory() as folder:
        results = [train(manifest, seed, Path(folder) / str(seed), overrides) for seed in range(seeds)]
    rows = [
        (
            result.seed,
            f"{result.seconds_with_first_data:.2f}" if result.solved else "never",
            f"{result.steps:,}",
            thousands(result.steps / result.seconds_with_first_data),
            f"{result.last['policyLag']:.1f}",
            result.cpu,
            f"{result.bytes_per_step:.0f}",
        )
        for result in results
    ]
    print_table(("seed", "s to 475", "steps to 475", "steps/s", "policy lag", "CPU", "bytes/step"), rows)
    seconds = [result.seconds_with_first_data if result.solved else float("inf") for result in results]
    rate = statistics.median(result.steps / result.seconds_with_first_data for result in results)
    print(
        f"\nmedian of {seeds}: {statistics.median(seconds):.2f} s to 475, {thousands(rate)} steps/s; "
        f"slowest seed {max(seconds):.2f} s"
    )
