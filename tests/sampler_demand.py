"""A job whose learner needs three samplers, or one while a file makes it slow. Environments and learner sleep,
so that the numbers do not depend on the speed of the machine."""

from __future__ import annotations

from typing import Any

SLOW = "slow"
"""While a file of this name is in the learner's output folder, its updates take four times as long."""
MODULE = f"""
import os
import time
from pathlib import Path

import gymnasium as gym
import torch
from gymnasium.envs.classic_control import CartPoleEnv
from torch import nn

SLOW = Path(os.environ["RLTRAINING_OUTPUT_DIR"], "{SLOW}")


class Sleepy(CartPoleEnv):
    def step(self, action):
        time.sleep(0.05)
        return super().step(action)


class Torso(nn.Linear):
    def forward(self, observation):
        if torch.is_grad_enabled():  # in an update of the learner
            time.sleep(0.56 if SLOW.exists() else 0.14)
        return super().forward(observation)


def make_torso(space):
    return Torso(space.shape[0], 16)


gym.register("Sleepy-v0", entry_point=Sleepy, max_episode_steps=500)
"""
"""An unroll of 8 steps takes a sampler 0.4 s and the learner 0.14 s."""


def demanding(module: str) -> dict[str, Any]:
    """Fields of the spec, for MODULE as the module of this name."""
    return {
        # Without a limit there are no credits, for which samplers would wait too.
        "algorithm": {"impala": {"unrollLength": 8, "queueCapacity": 2, "maxPolicyLag": None}},
        "environment": {"id": f"{module}:Sleepy-v0", "numEnvs": 1},
        "network": {"entryPoint": f"{module}:make_torso"},
        "sampler": {"replicas": 2, "autoscale": {"max": 6}},
        "stop": {"environmentSteps": 10**9},
    }
