"""The cost of policy lag: IMPALA and A3C with their defaults, without a bound, on more and more equal samplers.

Each sampler of IMPALA has one unroll in preparation and one in transit, so N samplers that are faster than the
learner have a lag of about 2 N. Samplers of A3C have one gradient each, and a lag of N - 1. The rows differ in the lag and
in the number of environments that contribute to the return.
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
from pathlib import Path

from tests.bench.table import print_table
from tests.bench.training import train

SAMPLERS = (1, 2, 4, 8, 16, 32)
STEPS = {"CartPole-v1": 200_000, "Acrobot-v1": 200_000}
ALGORITHMS = {"impala": "{maxPolicyLag: null}", "a3c": "{aggregate: {maxPolicyLag: null}}"}
"""Without a bound."""
MANIFEST = """
apiVersion: rltraining.dev/v1alpha1
kind: RLTrainingJob
metadata: {{name: lag}}
spec:
  algorithm: {{{algorithm}: {settings}}}
  environment: {{id: {task}}}
  stop: {{environmentSteps: {steps}}}
"""


def run(seeds: int) -> None:
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for (algorithm, settings), (task, steps) in itertools.product(ALGORITHMS.items(), STEPS.items()):
            manifest = folder / f"{algorithm}-{task}.yaml"
            manifest.write_text(
                MANIFEST.format(algorithm=algorithm, settings=settings, task=task, steps=steps)
            )
            for samplers in SAMPLERS:
                overrides = [f"sampler.replicas={samplers}"]
                results = [
                    train(manifest, seed, folder / f"{manifest.stem}-{samplers}-{seed}", overrides)
                    for seed in range(seeds)
                ]
                returns = [result.last["meanReturn"] for result in results]
                lags = [result.last["policyLag/p50"] for result in results]
                rows.append(
                    (
                        algorithm,
                        task,
                        samplers,
                        f"{statistics.median(lags):.0f}",
                        f"{statistics.mean(returns):.0f}",
                        ", ".join(f"{one:.0f}" for one in returns),
                    )
                )
    print_table(("algorithm", "task", "samplers", "lag p50", "mean return", "by seed"), rows)
