"""Measures the upper bounds of examples/cartpole-impala.yaml on one core.

The rows are the environment alone, the network alone, one sampler that never blocks, and one
learner that never blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from rltraining_api.manifest import load_manifest
from rltraining_trainer.algorithms.impala import ImpalaLearner
from rltraining_trainer.algorithms.unrolls import UnrollCollector
from rltraining_trainer.environments import Stepper, make_environments
from rltraining_trainer.networks import build_actor_critic
from rltraining_trainer.roles.main import keep_memory

from tests.bench.table import print_table, thousands
from tests.bench.timing import cpu_seconds

MANIFEST = Path("examples/cartpole-impala.yaml")


def run(seeds: int) -> None:
    torch.set_num_threads(1)
    keep_memory()
    spec = load_manifest(MANIFEST).spec
    settings, batch = spec.algorithm.parameters, spec.environment.num_envs
    environments = make_environments(spec.environment, batch)
    spaces = (environments.single_observation_space, environments.single_action_space)
    network, distribution = build_actor_critic(spec.network, *spaces)
    collector = UnrollCollector(
        network,
        distribution,
        Stepper(environments, spec.environment.id),
        length=settings.unroll_length,
        discount=settings.discount,
        reward_clip=settings.reward_clip,
        reward_scale=settings.reward_scale,
        seed=0,
    )
    learner = ImpalaLearner(build_actor_critic(spec.network, *spaces)[0], distribution, settings, None)
    unroll = collector.collect()
    observation, actions = unroll["observation"][0], np.zeros(batch, np.int64)

    def forward() -> None:
        with torch.no_grad():
            network.policy(observation, ())

    steps = settings.unroll_length * batch
    parts: list[tuple[str, Callable[[], object], int]] = [
        (f"{batch} environments, stepped", lambda: environments.step(actions), batch),
        ("policy, forward", forward, batch),
        ("a sampler's unroll", collector.collect, steps),
        ("a learner's update", lambda: learner.step([unroll]), steps),
    ]
    rows = []
    for name, work, count in parts:
        seconds = cpu_seconds(work)
        rows.append(
            (name, f"{seconds * 1e6:,.0f}", f"{seconds * 1e9 / count:,.0f}", thousands(count / seconds))
        )
    print_table(("on one core", "µs", "ns a step", "steps/s"), rows)
