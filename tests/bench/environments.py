"""A slow simulator: steps/s of one sampler's environments in turn, in threads and in processes, in one run.

One simulator sleeps, like a simulator in another process or on a network. The other computes in
Python, where threads block each other.
"""

from __future__ import annotations

import time
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from rltraining_api.environment import Environment
from rltraining_trainer.environments import Stepper, make_environments

from tests.bench.table import print_table

ENVIRONMENTS = 16
SECONDS = 3.0
STEPPING = ("Serial", "Threads", "Processes")


class Slow(gym.Env):
    """Each step takes ``milliseconds``: of sleep, or of its thread's CPU time."""

    observation_space = gym.spaces.Box(-1, 1, (17,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, milliseconds: float, computes: bool = False) -> None:
        self._seconds, self._computes, self._steps = milliseconds / 1000, computes, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self._steps += 1
        if self._computes:
            until = time.thread_time() + self._seconds
            while time.thread_time() < until:
                pass
        else:
            time.sleep(self._seconds)
        return self.observation_space.sample(), 1.0, self._steps % 500 == 0, False, {}


gym.register("Slow-v0", entry_point=Slow)


def run(seeds: int) -> None:
    torch.set_num_threads(1)
    rows = []
    for what, kwargs in (
        ("waits 10 ms", {"milliseconds": 10}),
        ("waits 1 ms", {"milliseconds": 1}),
        ("computes 2 ms", {"milliseconds": 2, "computes": True}),
    ):
        rates = {stepping: _rate(stepping, kwargs) for stepping in STEPPING}
        rows.append(
            (
                what,
                *(f"{rates[stepping]:,.0f}" for stepping in STEPPING),
                *(f"{rates[stepping] / rates['Serial']:.1f}" for stepping in STEPPING[1:]),
            )
        )
    print(f"steps/s of {ENVIRONMENTS} environments; each next to the ratio to Serial\n")
    print_table(("a step", *STEPPING, "Threads / Serial", "Processes / Serial"), rows)


def _rate(stepping: str, kwargs: dict[str, Any]) -> float:
    spec = Environment.model_validate(
        {"id": f"{__name__}:Slow-v0", "numEnvs": ENVIRONMENTS, "stepping": stepping, "kwargs": kwargs}
    )
    stepper = Stepper(make_environments(spec, ENVIRONMENTS), spec.id)
    stepper.reset(0)
    action, until = np.zeros(ENVIRONMENTS, np.int64), time.perf_counter() + SECONDS
    while time.perf_counter() < until:
        stepper.step(action)
    stepper.close()
    return stepper.stats.steps / stepper.stats.seconds
