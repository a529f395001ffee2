"""The tasks that users try first, learnt with the defaults alone or with one setting: returns and steps.

``python -m tests.bench tasks`` takes hours on two cores. ``TASKS=Acrobot-v1,Pendulum-v1:ppo`` selects rows.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.bench.table import print_table
from tests.bench.training import train


@dataclass(frozen=True)
class Row:
    """A task, an algorithm with nothing set, and how many environment steps it may take.

    Attributes:
        steps: at most what a tuned entry of Stable-Baselines3's zoo takes for the task, or what docs/defaults.md states.
        wanted: mean return of the last 100 complete training episodes.
        setting: one line of the algorithm's settings, in YAML; empty: none.
        spec: one line of the job's spec, in YAML; empty: none.
    """

    environment: str
    algorithm: str
    steps: int
    wanted: float
    setting: str = ""
    spec: str = ""


ROWS = [
    *(Row("CartPole-v1", algorithm, 500_000, 475) for algorithm in ("impala", "a2c", "a3c")),
    Row("CartPole-v1", "ppo", 100_000, 475),
    Row("CartPole-v1", "dqnApex", 100_000, 475),
    *(Row("Acrobot-v1", algorithm, 500_000, -100) for algorithm in ("ppo", "impala", "a2c", "a3c")),
    Row("Acrobot-v1", "dqnApex", 100_000, -100),
    *(Row("LunarLander-v3", algorithm, 1_000_000, 200) for algorithm in ("ppo", "impala", "a2c", "a3c")),
    Row("LunarLander-v3", "dqnApex", 150_000, 200),
    Row("MountainCar-v0", "dqnApex", 120_000, -120),
    Row("MountainCar-v0", "dqnApex", 120_000, -120, "learningRate: 0.004"),
    Row("Pendulum-v1", "ppo", 100_000, -200),
    Row("Pendulum-v1", "ppo", 100_000, -200, "learningRateSchedule: Constant"),
    Row("Pendulum-v1", "ddpgApex", 40_000, -200),
    Row("Pendulum-v1", "impala", 500_000, -200),
    Row("MountainCarContinuous-v0", "ppo", 100_000, 90),
    Row(
        *("MountainCarContinuous-v0", "ppo", 100_000, 90),
        spec="network: {mlp: {}, gaussian: {initialLogStd: 1}}",
    ),
    *(Row("MountainCarContinuous-v0", algorithm, 300_000, 90) for algorithm in ("a2c", "a3c", "impala")),
    Row("HalfCheetah-v5", "ppo", 1_000_000, 1_800),
    Row("Hopper-v5", "ppo", 1_000_000, 2_000),
    Row("Walker2d-v5", "ppo", 1_000_000, 2_000),
    Row("HalfCheetah-v5", "ddpgApex", 1_000_000, 5_000),
    Row("LunarLanderContinuous-v3", "impala", 1_000_000, 200),
    Row("HalfCheetah-v5", "impala", 1_000_000, 1_800),
    Row("Hopper-v5", "impala", 1_000_000, 2_000),
    Row("Walker2d-v5", "impala", 1_000_000, 2_000),
]

MANIFEST = """\
apiVersion: rltraining.dev/v1alpha1
kind: RLTrainingJob
metadata: {{name: task}}
spec:
  algorithm: {{{algorithm}: {{{setting}}}}}
  environment: {{id: {environment}}}
  sampler: {{replicas: 2}}
  stop: {{environmentSteps: {steps}}}
  {spec}
"""


def run(seeds: int) -> None:
    chosen = [word for word in os.environ.get("TASKS", "").split(",") if word]
    print_table(HEADER, [_measure(row, seeds) for row in ROWS if not chosen or _is_chosen(row, chosen)])


HEADER = (
    "task",
    "algorithm",
    "setting",
    "steps",
    "return (mean of the last 100 episodes)",
    "by seed",
    "wanted",
    "steps/s",
)


def _is_chosen(row: Row, chosen: list[str]) -> bool:
    return bool({row.environment, row.algorithm, f"{row.environment}:{row.algorithm}"} & {*chosen})


def _measure(row: Row, seeds: int) -> tuple[str, ...]:
    returns, rates = [], []
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as folder:
            manifest = Path(folder) / "job.yaml"
            manifest.write_text(MANIFEST.format(**vars(row)))
            measured = train(manifest, seed, Path(folder) / "run", [])
        returns.append(measured.last.get("meanReturn") or float("nan"))
        rates.append(measured.steps_per_second)
        print(
            f"  {row.environment} {row.algorithm} {row.setting}{row.spec} seed {seed}: {returns[-1]:.1f}",
            flush=True,
        )
    return (
        row.environment,
        row.algorithm,
        row.setting or row.spec,
        f"{row.steps:,}",
        f"{np.mean(returns):.1f}",
        ", ".join(f"{value:.0f}" for value in returns),
        f"{row.wanted:g}",
        f"{np.mean(rates):,.0f}",
    )
