"""The cost of policy lag: returns of IMPALA, A3C and A2C in mode Async, if their one sampler acts with old parameters.

Each algorithm has its defaults for the task. Its sampler waits for the update by its data, and then acts with the parameters
of 0, 1, 2, 4, ... 64 versions before, so that rows differ in nothing but the lag. A row with several samplers would also
differ in the number of environments.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rltraining.compare.estimates import estimate

from tests.bench import old_policies
from tests.bench.table import print_table
from tests.bench.training import train

ENTRY = f"{old_policies.__name__}:main"
LAGS = (0, 1, 2, 4, 8, 16, 32, 64)
STEPS = {"CartPole-v1": 100_000}
ALGORITHMS = {
    "impala": "{queueCapacity: 0, maxPolicyLag: 1}",
    "a3c": "{}",
    "a2c": "{aggregate: {mode: Async}}",
}
"""The settings of each algorithm."""
VERSIONS = {"impala": "unrolls/used", "a3c": "gradients/applied", "a2c": "unrolls/used"}
"""What a new version of the parameters is made from."""
MANIFEST = """
apiVersion: rltraining.dev/v1alpha1
kind: RLTrainingJob
metadata: {{name: lag}}
spec:
  algorithm: {{{algorithm}: {settings}}}
  environment: {{id: {task}}}
  stop: {{environmentSteps: {steps}}}
"""


class Row(NamedTuple):
    """The runs of an algorithm with a lag."""

    task: str
    algorithm: str
    lag: int
    returns: list[float]
    """Of each seed, the mean return of the last 100 training episodes."""
    versions: int
    """Versions of the parameters in a run."""


def run(seeds: int) -> None:
    print_table(
        ("task", "algorithm", "lag", "return: IQM (95%)", "by seed", "versions in a run"),
        [_cells(row) for row in measure(seeds)],
    )


def measure(seeds: int) -> Iterator[Row]:
    """Trains all rows, and returns each when its runs have ended."""
    # Processes of runs inherit the environment, and import the entry from this folder.
    os.environ["PYTHONPATH"] = os.pathsep.join((str(Path.cwd()), os.environ.get("PYTHONPATH", "")))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for (task, steps), (algorithm, settings) in itertools.product(STEPS.items(), ALGORITHMS.items()):
            manifest = folder / f"{algorithm}-{task}.yaml"
            manifest.write_text(
                MANIFEST.format(algorithm=algorithm, settings=settings, task=task, steps=steps)
            )
            for lag in LAGS:
                os.environ[old_policies.VARIABLE] = str(lag)
                runs = [
                    train(manifest, seed, folder / f"{manifest.stem}-{lag}-{seed}", [], ENTRY)
                    for seed in range(seeds)
                ]
                assert all(result.last["policyLag/p99"] == 0 for result in runs), (
                    "a lag that is not artificial"
                )
                versions = statistics.median(result.last[VERSIONS[algorithm]] for result in runs)
                yield Row(task, algorithm, lag, [result.last["meanReturn"] for result in runs], int(versions))


def _cells(row: Row) -> tuple[str, ...]:
    found = estimate(row.returns)
    return (
        row.task,
        row.algorithm,
        str(row.lag),
        f"{found.iqm:.0f} ({found.low:.0f} to {found.high:.0f})",
        ", ".join(f"{one:.0f}" for one in row.returns),
        str(row.versions),
    )


if __name__ == "__main__":  # docs/lag.py draws these rows
    for found in measure(int(sys.argv[1])):
        print(json.dumps(found._asdict()), flush=True)
