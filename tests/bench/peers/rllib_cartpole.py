"""IMPALA of RLlib on CartPole-v1: settings of its tuned example (cartpole_impala.py), two samplers of 16 environments."""

from __future__ import annotations

import os
import sys

from score import EPISODES, Score

seed, limit = int(sys.argv[1]), float(sys.argv[2])
score = Score(limit)
os.environ["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] = "0"  # workers use this environment instead of a copy

import ray  # noqa: E402  (start-up counts imports)
from ray.rllib.algorithms.impala import IMPALAConfig  # noqa: E402
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig  # noqa: E402

ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
algorithm = (
    IMPALAConfig()
    .environment("CartPole-v1")
    .env_runners(num_env_runners=2, num_envs_per_env_runner=16)
    .reporting(metrics_num_episodes_for_smoothing=EPISODES, min_time_s_per_iteration=0)
    .debugging(seed=seed)
    .training(
        train_batch_size_per_learner=500,
        grad_clip=40.0,
        grad_clip_by="global_norm",
        lr=5e-4,
        vf_loss_coeff=0.05,
        entropy_coeff=0.0,
    )
    .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[64, 64], vf_share_layers=True))
    .build_algo()
)
score.begin()
steps = 0
while not score.over:
    samplers = algorithm.train().get("env_runners", {})  # empty at first
    steps = int(samplers.get("num_env_steps_sampled_lifetime", 0))
    if samplers.get("num_episodes_lifetime", 0) >= EPISODES:
        for _ in range(EPISODES):
            score.add(samplers["episode_return_mean"])  # of the last 100
score.report(steps)
os._exit(0)  # the caller ends the other processes
