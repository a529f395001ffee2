"""The smallest learning problem: one step, in which the observation gives the right action."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class Bandit(gym.Env):
    """One step, in which the observation gives the right action."""

    observation_space = spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, continuous: bool) -> None:
        self.continuous = continuous
        self.action_space = spaces.Box(0, 4, (1,), np.float32) if continuous else spaces.Discrete(2, start=3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.right = int(self.np_random.integers(2))
        return np.array([2.0 * self.right - 1], np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        missed_by = abs(float(action[0]) - (1.0 + 2.0 * self.right)) if self.continuous else 0.0
        hit = float(action == 3 + self.right) if not self.continuous else 0.0
        return np.zeros(1, np.float32), hit - missed_by, True, False, {}
