"""APPO of Sample Factory on CartPole-v1: its example's settings (sf_examples/train_gym_env.py), two workers."""

from __future__ import annotations

import os
import sys
import tempfile

from score import ENVIRONMENT, Score

seed, limit = int(sys.argv[1]), float(sys.argv[2])
score = Score(limit)

import gymnasium  # noqa: E402  (start-up counts imports)
from sample_factory.algo.runners.runner import AlgoObserver, Runner  # noqa: E402
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args  # noqa: E402
from sample_factory.envs.env_utils import register_env  # noqa: E402
from sample_factory.train import make_runner  # noqa: E402


def make(
    name: str, config: object = None, env_config: object = None, render_mode: str | None = None
) -> object:
    return gymnasium.make(name)


class Watch(AlgoObserver):
    def on_start(self, runner: Runner) -> None:
        score.begin()

    def on_training_step(self, runner: Runner, training_iteration_since_resume: int) -> None:
        for episode_return in runner.policy_avg_stats.get("reward", [[]])[0]:  # the last 100
            score.add(episode_return)
        if score.over:
            score.report(sum(runner.env_steps.values()))
            os._exit(0)  # the caller ends the workers


if __name__ == "__main__":
    register_env(ENVIRONMENT, make)
    arguments = (
        f"--env={ENVIRONMENT} --seed={seed} --train_dir={tempfile.mkdtemp()} --device=cpu --algo=APPO"
        " --use_rnn=False --recurrence=1 --with_vtrace=False --encoder_mlp_layers 64 64 --num_workers=2"
        " --num_envs_per_worker=20 --policy_workers_per_policy=1 --batch_size=512 --reward_scale=0.1"
        " --train_for_env_steps=1000000000"
    ).split()
    parser, _ = parse_sf_args(arguments)
    _, runner = make_runner(parse_full_cfg(parser, arguments))
    runner.register_observer(Watch())
    runner.init()
    runner.run()
