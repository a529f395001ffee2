"""SAC of Stable-Baselines3 with its defaults, but learning begins after 1,000 steps.

``sac`` runs it in a separate virtual environment. Prints environment steps per second, each with an update.
"""

from __future__ import annotations

import sys
import time

import torch
from stable_baselines3 import SAC
from stable_baselines3.common.callbacks import BaseCallback

START, WARM_UP = 1000, 100


class Clock(BaseCallback):
    """Ends training ``seconds`` after the first 100 updates, which are a warm-up."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds, self.start = seconds, 0.0

    def _on_step(self) -> bool:
        if self.num_timesteps == START + WARM_UP:
            self.start = time.monotonic()
        self.elapsed = time.monotonic() - self.start
        return not self.start or self.elapsed < self.seconds


environment, seconds, threads = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(threads)
clock = Clock(seconds)
model = SAC("MlpPolicy", environment, learning_starts=START, device="cpu", seed=0)
model.learn(1 << 40, callback=clock)
print((model.num_timesteps - START - WARM_UP) / clock.elapsed)
