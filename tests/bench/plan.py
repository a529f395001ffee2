"""Predictions of `rltrain plan` from a run with one sampler, beside measurements with more.

A step of the environment sleeps for 2 ms, so that two cores carry four samplers, and the learner makes ten updates from each
batch, so that it is busy with few samplers.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rltraining import workdir
from rltraining.plan import Prediction, predict
from rltraining_api.status import Progress

from tests.bench.table import print_table
from tests.bench.training import train

SECONDS = 20
SAMPLERS = (1, 2, 4, 8)
MODULE = """
import time

import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv


class Simulator(CartPoleEnv):
    def step(self, action):
        time.sleep(0.002)
        return super().step(action)


gym.register("PlannedSimulator-v0", entry_point=Simulator, max_episode_steps=500)
"""
MANIFEST = """
apiVersion: rltraining.dev/v1alpha1
kind: RLTrainingJob
metadata: {name: planned}
spec:
  environment: {id: planned_simulator:PlannedSimulator-v0, numEnvs: 4}
  stop: {environmentSteps: 1000000000}
  algorithm: {impala: {unrollLength: 16, updatesPerBatch: 10}}
"""
TASKS = {
    "impala": (),
    "ppo": ("algorithm=ppo", "algorithm.ppo.rolloutLength=64", "algorithm.ppo.learningRateSchedule=Constant"),
}


def run(seeds: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "planned_simulator.py").write_text(MODULE)
        (folder / "job.yaml").write_text(MANIFEST)
        os.environ["PYTHONPATH"] = name
        rows = [row for task, changes in TASKS.items() for row in _rows(folder, task, changes, seeds)]
    print_table(
        (
            "algorithm",
            "samplers",
            "predicted steps/s",
            "measured: median (all)",
            "measured / predicted",
            "MB/s received, sent: predicted",
            "measured",
        ),
        rows,
    )


def _rows(folder: Path, task: str, changes: Sequence[str], seeds: int) -> list[Sequence[object]]:
    measured: dict[int, list[Progress]] = {count: [] for count in SAMPLERS}
    predicted: dict[int, Prediction] = {}
    for seed in range(seeds):
        for count in SAMPLERS:
            to = folder / f"{task}-{count}-{seed}"
            train(
                folder / "job.yaml",
                seed,
                to,
                [*changes, f"sampler.replicas={count}", f"stop.seconds={SECONDS}"],
            )
            job = workdir.last_state(to)
            assert job is not None
            measured[count].append(job.status.progress)
            if not predicted:
                predicted = {one.samplers: one for one in predict(job, SAMPLERS)}
    return [_row(task, predicted[count], found) for count, found in measured.items()]


def _row(task: str, predicted: Prediction, measured: Sequence[Progress]) -> Sequence[object]:
    rates = sorted(one.steps_per_second or 0.0 for one in measured)
    return (
        task,
        predicted.samplers,
        f"{predicted.steps_per_second:,.0f}",
        f"{(median := statistics.median(rates)):,.0f} ({', '.join(f'{rate:,.0f}' for rate in rates)})",
        f"{median / predicted.steps_per_second:.2f}",
        _megabytes([predicted]),
        _megabytes(measured),
    )


def _megabytes(found: Sequence[Prediction | Progress]) -> str:
    """Formats the medians of the bytes received and sent."""
    directions = (
        [one.received_bytes_per_second for one in found],
        [one.sent_bytes_per_second for one in found],
    )
    return ", ".join(_median(rates) for rates in directions)


def _median(rates: Sequence[float | None]) -> str:
    known = [rate for rate in rates if rate is not None]
    return f"{statistics.median(known) / 1e6:.3f}" if known else "-"
