"""Measures the CPU time of an Atari step.

The rows are the environments, the network, a sampler that never blocks, and a learner.

Figures in µs are CPU time, which other load on the machine barely affects. Figures in steps/s of
several threads are wall time and need a quiet machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from rltraining_api.algorithms import A3c, DqnApex, Impala
from rltraining_api.environment import Environment
from rltraining_api.job import JobSpec
from rltraining_api.manifest import load_manifest
from rltraining_trainer.algorithms.a3c import AdvantageActorCritic
from rltraining_trainer.algorithms.dqn import DqnActor, DqnLearner
from rltraining_trainer.algorithms.impala import ImpalaLearner
from rltraining_trainer.algorithms.transition_collector import TransitionCollector
from rltraining_trainer.algorithms.unrolls import UnrollCollector
from rltraining_trainer.dataflow import flatten_parameters
from rltraining_trainer.environments import Stepper, make_environments
from rltraining_trainer.networks import build_actor_critic, build_q_network
from rltraining_trainer.roles.main import keep_memory

from tests.bench.table import print_table
from tests.bench.timing import cpu_seconds

EXAMPLES = ("pong-impala", "breakout-impala", "pong-a3c", "pong-dqn-apex")
BLOCK_STEPS = 16
SECONDS = 5.0
Work = Callable[[], object]


class Parts(NamedTuple):
    """The work of a sampler and of a learner of an example."""

    forward: Work
    """A forward pass on one observation of each environment."""
    collect: Work
    steps: int
    """Steps of one ``collect``."""
    update: Work
    updated: int
    """Steps or transitions of one ``update``."""


def run(seeds: int) -> None:
    torch.set_num_threads(1)
    keep_memory()
    print("µs of one core\n")
    rows = [_row(name) for name in EXAMPLES]
    columns = (
        "games alone",
        "network alone",
        "their sum",
        "sampler",
        "loop's share",
        "games' share",
        "update",
        "in bfloat16",
    )
    print_table(("example", *columns), rows)
    print("\nOf a step, or in Ape-X's update of a transition; A3C's update is the sampler's gradient.\n")
    print_table(("8 games of Pong", "steps/s", "µs of all cores"), [_alone(threads) for threads in (1, 2)])


def _row(name: str) -> tuple[str, ...]:
    path = Path("examples") / f"{name}.yaml"
    spec = load_manifest(path).spec
    rounded = load_manifest(path, [f"network.{spec.network.name}.gradientPrecision=BFloat16"]).spec
    batch = spec.environment.num_envs
    environments = make_environments(spec.environment, batch)
    parts = _parts(spec, environments)
    games = _stepping(environments)
    alone = cpu_seconds(games, SECONDS, 5) / batch
    network = cpu_seconds(parts.forward, SECONDS, 3) / batch
    sampler = cpu_seconds(parts.collect, 2 * SECONDS, 1) / parts.steps
    update = cpu_seconds(parts.update, 2 * SECONDS, 1) / parts.updated
    faster = cpu_seconds(_parts(rounded, environments).update, 2 * SECONDS, 1) / parts.updated
    figures = [f"{seconds * 1e6:,.0f}" for seconds in (alone, network, alone + network, sampler)]
    shares = [f"{part / sampler:.0%}" for part in (alone + network, alone)]
    return name, *figures, *shares, f"{update * 1e6:,.0f}", f"{faster * 1e6:,.0f}"


def _parts(spec: JobSpec, environments: VectorEnv) -> Parts:
    settings, batch = spec.algorithm.parameters, spec.environment.num_envs
    spaces = environments.single_observation_space, environments.single_action_space
    stepper = Stepper(environments, spec.environment.id)
    shared: dict[str, Any] = {
        "discount": settings.discount,
        "reward_clip": settings.reward_clip,
        "reward_scale": settings.reward_scale,
        "seed": 0,
    }
    if isinstance(settings, DqnApex):
        q_network, greedy = build_q_network(spec.network, *spaces, dueling=settings.dueling)
        flatten_parameters(q_network)
        actor, mine = DqnActor(q_network, greedy, settings), (range(batch), batch)
        steps = TransitionCollector(
            actor, stepper, BLOCK_STEPS, settings.n_step, **shared, environments=mine[0], total=batch
        )
        observation, transitions = (
            steps.collect().transitions["observation"][:batch],
            steps.collect().transitions,
        )
        q_learner = DqnLearner(build_q_network(spec.network, *spaces, dueling=settings.dueling)[0], settings)
        count = len(transitions["reward"])
        return Parts(
            _without_gradient(lambda: actor.value(observation)),
            steps.collect,
            BLOCK_STEPS * batch,
            lambda: q_learner.step(transitions),
            count,
        )
    network, distribution = build_actor_critic(spec.network, *spaces)
    parameters = flatten_parameters(network)
    assert isinstance(settings, Impala | A3c)
    length = settings.unroll_length if isinstance(settings, Impala) else settings.rollout_length
    collector = UnrollCollector(network, distribution, stepper, length, **shared)
    unroll = collector.collect()
    policy = network.acting()
    forward = _without_gradient(lambda: policy(unroll["observation"][0], (), None))
    if isinstance(settings, Impala):
        learner = ImpalaLearner(build_actor_critic(spec.network, *spaces)[0], distribution, settings, 10**9)
        return Parts(
            forward, collector.collect, length * batch, lambda: learner.step([unroll]), length * batch
        )
    gradients = AdvantageActorCritic(network, distribution, settings, parameters)

    def gradient() -> None:
        gradients.begin(unroll)
        gradients.gradient(0)

    return Parts(forward, collector.collect, length * batch, gradient, length * batch)


def _without_gradient(work: Work) -> Work:
    return torch.no_grad()(work)


def _stepping(environments: VectorEnv) -> Work:
    """Steps the environments with random actions, like an untrained policy."""
    random, count = np.random.default_rng(0), environments.num_envs
    actions = environments.single_action_space.n  # type: ignore[attr-defined]
    return lambda: environments.step(random.integers(0, actions, count))


def _alone(threads: int) -> tuple[str, ...]:
    torch.set_num_threads(threads)  # as many threads step the games
    environments = make_environments(Environment(id="ALE/Pong-v5"), 8)
    environments.reset(seed=0)
    step = _stepping(environments)
    count, start, cpu = 0, time.monotonic(), time.process_time()
    while time.monotonic() < start + SECONDS:
        step()
        count += environments.num_envs
    seconds, cpu = time.monotonic() - start, time.process_time() - cpu
    torch.set_num_threads(1)
    name = f"{threads} thread{'s' if threads > 1 else ''}"
    return name, f"{count / seconds:,.0f}", f"{cpu / count * 1e6:,.0f}"
