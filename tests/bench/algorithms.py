"""All algorithms, learning, over RPC, until the stop rules of their examples end the runs.

`make curves` shows the examples with an LSTM, which take longer. Seconds count from the first data
that reaches the learner.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.bench.table import print_table, thousands
from tests.bench.training import Measured, train


class Task(NamedTuple):
    example: str
    overrides: tuple[str, ...] = ()


LAST_100 = ("stop.meanReturn.episodes=100",)
TASKS = (
    Task("cartpole-a3c", LAST_100),
    Task("cartpole-a3c-published"),
    Task("cartpole-two-holders", LAST_100),
    Task("cartpole-a2c", LAST_100),
    Task("cartpole-ppo"),
    Task("cartpole-impala", LAST_100),
    Task("cartpole-dqn-apex"),
    Task("pendulum-ppo"),
    Task("pendulum-ddpg-apex"),
)
SUSTAINED_SECONDS = 10
ENDLESS = ("stop.meanReturn=null", "stop.smoothedReturn=null", "stop.environmentSteps=1000000000")


def run(seeds: int) -> None:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for task in TASKS:
            manifest = Path(f"examples/{task.example}.yaml")
            results = [
                train(manifest, seed, Path(folder) / f"{task.example}-{seed}", task.overrides)
                for seed in range(seeds)
            ]
            endless = (*ENDLESS, f"stop.seconds={SUSTAINED_SECONDS}")
            longer = train(manifest, 0, Path(folder) / f"{task.example}-longer", endless)
            rows.append(_row(task, results, longer))
    print_table(
        (
            "example",
            "steps/s",
            "s to solve: median (all)",
            "steps to solve",
            "lag",
            "CPU",
        ),
        rows,
    )
    print(f"\n{seeds} seeds each; steps/s: of one more run that continues for {SUSTAINED_SECONDS} s.")


def _row(task: Task, results: list[Measured], longer: Measured) -> tuple[str, ...]:
    seconds = [result.seconds if result.solved else float("inf") for result in results]
    solved = [result.steps for result in results if result.solved]
    shown = ", ".join(f"{taken:.1f}" if taken < float("inf") else "never" for taken in sorted(seconds))
    return (
        task.example,
        thousands(longer.steps_per_second),
        f"{statistics.median(seconds):.1f} ({shown})",
        f"{statistics.median(solved):,.0f}" if solved else "",
        f"{longer.last['policyLag']:.1f}",
        longer.cpu,
    )
