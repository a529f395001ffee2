"""The cost of policy lag: IMPALA with its defaults, without a bound, on more and more equal samplers.

Each sampler has one unroll in preparation and one in transit, so N samplers that are faster than the
learner have a lag of about 2 N. The rows differ in the lag and in the number of environments that
contribute to the return.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from tests.bench.table import print_table
from tests.bench.training import train

SAMPLERS = (1, 2, 4, 8, 16, 32)
STEPS = {"CartPole-v1": 200_000, "Acrobot-v1": 200_000}
MANIFEST = """
apiVersion: rltraining.dev/v1alpha1
kind: RLTrainingJob
metadata: {{name: lag}}
spec:
  algorithm: {{impala: {{maxPolicyLag: null}}}}
  environment: {{id: {task}}}
  stop: {{environmentSteps: {steps}}}
"""


def run(seeds: int) -> None:
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for task, steps in STEPS.items():
            manifest = folder / f"{task}.yaml"
            manifest.write_text(MANIFEST.format(task=task, steps=steps))
            for samplers in SAMPLERS:
                overrides = [f"sampler.replicas={samplers}"]
                results = [
                    train(manifest, seed, folder / f"{task}-{samplers}-{seed}", overrides)
                    for seed in range(seeds)
                ]
                returns = [result.last["meanReturn"] for result in results]
                lags = [result.last["policyLag/p50"] for result in results]
                rows.append(
                    (
                        task,
                        samplers,
                        f"{statistics.median(lags):.0f}",
                        f"{statistics.mean(returns):.0f}",
                        ", ".join(f"{one:.0f}" for one in returns),
                    )
                )
    print_table(("task", "samplers", "lag p50", "mean return", "by seed"), rows)
