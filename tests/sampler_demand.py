"""A job whose learner needs three samplers, or one sampler while a file slows the learner down.

Environments and learner sleep, few times and long, so that the numbers do not depend on the speed of the machine.
"""

from __future__ import annotations

from typing import Any

SLOW = "slow"
"""Name of a file. While the file is in the learner's output folder, updates take four times as long."""
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
        time.sleep(0.4)
        return super().step(action)


class Torso(nn.Linear):
    def forward(self, observation):
        if torch.is_grad_enabled():  # in an update of the learner
            time.sleep(1.2 if SLOW.exists() else 0.3)
        return super().forward(observation)


def make_torso(space):
    return Torso(space.shape[0], 16)


gym.register("Sleepy-v0", entry_point=Sleepy, max_episode_steps=500)
"""
"""An unroll of 2 steps takes a sampler 0.8 s and the learner 0.3 s: two samplers keep it busy for 75% of the time.

At 67% the operator would add two samplers, at 85% none.
"""


def demanding(module: str) -> dict[str, Any]:
    """Returns fields of a spec that uses MODULE under the name `module`."""
    return {
        # Without a limit there are no credits, which samplers would also wait for.
        "algorithm": {
            "impala": {"unrollLength": 2, "updatesPerBatch": 1, "queueCapacity": 2, "maxPolicyLag": None}
        },
        "environment": {"id": f"{module}:Sleepy-v0", "numEnvs": 1},
        "network": {"entryPoint": f"{module}:make_torso"},
        "sampler": {"replicas": 2, "autoscale": {"max": 6}},
        "stop": {"environmentSteps": 10**9},
    }
