"""The smallest thing to learn: one step, whose observation says which action is right."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from rltraining_api.network import Mlp, Network
from rltraining_trainer.algorithms.unrolls import UnrollCollector
from rltraining_trainer.environments import Stepper
from rltraining_trainer.networks import build_actor_critic


class Outcome(NamedTuple):
    continuous: bool
    random: float
    """Return of random actions."""
    learnt: float
    """A return that shows that the right action is learnt."""


DISCRETE_OUTCOME = Outcome(False, 0.5, 0.95)
CONTINUOUS_OUTCOME = Outcome(True, -1.4, -0.3)


class Bandit(gym.Env):
    """One step: the observation says which action is right."""

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


def bandit_collector(continuous: bool, length: int, discount: float) -> UnrollCollector:
    """Eight bandits, with a network that knows nothing yet."""
    torch.manual_seed(0)
    environments = SyncVectorEnv([lambda: Bandit(continuous)] * 8)
    network, distribution = build_actor_critic(
        Network(mlp=Mlp(hidden_sizes=(8,))),
        environments.single_observation_space,
        environments.single_action_space,
    )
    return UnrollCollector(
        network,
        distribution,
        Stepper(environments, "Bandit"),
        length=length,
        discount=discount,
        reward_clip=None,
        reward_scale=1.0,
        seed=0,
    )
