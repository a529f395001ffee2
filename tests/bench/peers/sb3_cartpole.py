"""PPO of Stable-Baselines3 on CartPole-v1 with the settings of its zoo (hyperparams/ppo.yml)."""

from __future__ import annotations

import sys

from score import ENVIRONMENT, Score

seed, limit = int(sys.argv[1]), float(sys.argv[2])
score = Score(limit)

import torch  # noqa: E402  (start-up counts imports)
from stable_baselines3 import PPO  # noqa: E402
from stable_baselines3.common.callbacks import BaseCallback  # noqa: E402
from stable_baselines3.common.env_util import make_vec_env  # noqa: E402


class Watch(BaseCallback):
    def _on_step(self) -> bool:
        for info in self.locals["infos"]:
            if "episode" in info:
                score.add(info["episode"]["r"])
        return not score.over


torch.set_num_threads(1)
model = PPO(
    "MlpPolicy",
    make_vec_env(ENVIRONMENT, n_envs=8, seed=seed),
    n_steps=32,
    batch_size=256,
    gae_lambda=0.8,
    gamma=0.98,
    n_epochs=20,
    ent_coef=0.0,
    learning_rate=lambda left: 0.001 * left,
    clip_range=lambda left: 0.2 * left,
    device="cpu",
    seed=seed,
)
score.begin()
for _ in range(1000):  # the zoo's schedule takes 100,000 steps, and restarts if they are not enough
    model.learn(100_000, callback=Watch(), reset_num_timesteps=False)
    if score.over:
        break
score.report(model.num_timesteps)
