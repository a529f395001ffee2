"""PPO of Stable-Baselines3 with its defaults, the paper's settings for MuJoCo.

``ppo`` runs it in a separate virtual environment. Prints environment steps per second of complete
iterations, with rollout and update.
"""

from __future__ import annotations

import sys
import time

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback


class Clock(BaseCallback):
    """Ends training at the first iteration that begins after ``seconds``.

    Training lasts until at least two iterations count. The first iteration is a warm-up.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds, self.starts = seconds, []

    def _on_rollout_start(self) -> None:
        self.starts.append((time.monotonic(), self.num_timesteps))

    def _on_step(self) -> bool:
        (start, _), (now, _) = self.starts[0], self.starts[-1]
        return now < start + self.seconds or len(self.starts) < 4


environment, seconds, threads = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(threads)
clock = Clock(seconds)
PPO("MlpPolicy", environment, device="cpu", seed=0).learn(1 << 40, callback=clock)
(start, before), (end, after) = clock.starts[1], clock.starts[-1]
print((after - before) / (end - start))
