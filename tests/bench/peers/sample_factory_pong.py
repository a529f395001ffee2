"""APPO of Sample Factory on Pong: its example's settings (sf_examples/atari), with games and threads for two cores.

The example has 8 workers of one game, and trains on 4 minibatches of 256. Here two workers have 16 games each, and
train on 16 minibatches, so that an iteration is still one rollout of 128 steps of all games. On a slow machine such an
iteration takes longer than the runner waits for a heartbeat of the learner, so the runner does not check heartbeats. The
further options are appended, such as ``--async_rl=True``.
"""

from __future__ import annotations

import os
import sys
import tempfile

from speed import Speed

speed = Speed(float(sys.argv[2]))

import ale_py  # noqa: E402, F401  (registers the games, in the workers too; start-up counts imports)
from sample_factory.algo.runners.runner import AlgoObserver, Runner  # noqa: E402
from sample_factory.train import make_runner  # noqa: E402
from sf_examples.atari.train_atari import parse_atari_args, register_atari_components  # noqa: E402


class Watch(AlgoObserver):
    def on_training_step(self, runner: Runner, training_iteration_since_resume: int) -> None:
        updates = int(runner.buffer_mgr.policy_versions[0])
        if speed.on_iteration(sum(runner.env_steps.values()), updates):
            speed.report()
            os._exit(0)  # the caller ends the workers


if __name__ == "__main__":
    register_atari_components()
    arguments = (
        f"--env=atari_pong --seed={sys.argv[1]} --train_dir={tempfile.mkdtemp()} --device=cpu --algo=APPO"
        " --num_workers=2 --num_envs_per_worker=16 --num_batches_per_epoch=16"
        " --decorrelate_envs_on_one_worker=False --summaries_use_frameskip=False"
        " --heartbeat_reporting_interval=1000000"
    ).split()
    _, runner = make_runner(parse_atari_args([*arguments, *sys.argv[3:]]))
    runner.register_observer(Watch())
    runner.init()
    runner.run()
