"""The learner and the sampler that A3C, A2C and PPO share: each sampler acts for a rollout, then learns from it.

The learner computes the gradients from the rollouts of all samplers (``gradients: Learner``), or each sampler computes and
sends the gradients of its rollouts (``gradients: Samplers``). An algorithm defines how to compute them (``RolloutGradients``).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rltraining_trainer.algorithms.parameter_server import ParameterServer
from rltraining_trainer.algorithms.reproducible import learn_from_blocks, sample_unrolls
from rltraining_trainer.algorithms.rollout_learner import (
    RolloutGradients,
    RolloutLearner,
    any_learner,
    average,
)
from rltraining_trainer.algorithms.unrolls import Unroll, UnrollCollector
from rltraining_trainer.dataflow import flatten_parameters
from rltraining_trainer.dataflow.gradients import GradientPush, UnrollPush, reduce_gradients
from rltraining_trainer.dataflow.reduce import Reduce, alone
from rltraining_trainer.world import RolloutStats, SamplerGradients, World

FREE_RUN_SECONDS = 0.02
"""Learners with slices of the parameters apply gradients on arrival, and synchronise with each other with this period."""


def learn(world: World, kind: type[RolloutGradients]) -> None:
    """The learner's function: updates the policy with the rollouts or gradients of its samplers."""
    if world.spec.reproducible is not None:
        network, distribution = world.actor_critic()
        learner = RolloutLearner(network, distribution, world.settings, kind, world.total_steps, world.device)
        learn_from_blocks(world, learner, distribution, world.settings.rollout_length)
    elif world.spec.gradients_at == "Learner":
        _learn_from_rollouts(world, kind)
    else:
        _learn_from_gradients(world, kind)


def sample(world: World, kind: type[RolloutGradients]) -> None:
    """The sampler's function: acts for a rollout, and sends it or its gradients."""
    if world.spec.reproducible is not None:
        sample_unrolls(world, world.settings.rollout_length)
        return

    # Build the network and the environments, and get the learner's parameters.
    settings, at_learner = world.settings, world.spec.gradients_at == "Learner"
    network, distribution = world.actor_critic()
    parameters = flatten_parameters(network)
    size = parameters.numel()
    path = world.rollouts(settings.aggregate) if at_learner else world.gradients(settings.aggregate, size)
    environments = world.environments()
    seed = world.start(parameters)

    # Send each rollout, or its gradients. Both return with the updated parameters.
    collector = UnrollCollector.of(
        settings, settings.rollout_length, network, distribution, environments, seed
    )
    gradients = kind(network, distribution, settings, parameters)
    send = send_in_step if settings.aggregate.mode == "Sync" else send_at_once
    while True:
        unroll = collector.collect()
        if at_learner:
            path.push_rollout(dict(unroll))
        else:
            send(unroll, gradients, path)


def send_at_once(unroll: Unroll, gradients: RolloutGradients, path: SamplerGradients) -> None:
    """Sends the rollout's gradient independently of other samplers (mode Async)."""
    statistics = gradients.begin(unroll)
    if statistics is not None:
        gradients.share(statistics)
    path.push(gradients.gradient(0), stats_of(unroll))


def send_in_step(unroll: Unroll, gradients: RolloutGradients, path: SamplerGradients) -> None:
    """Sends one gradient for each update that all samplers make together (mode Sync)."""
    epoch, iteration, _ = path.place
    statistics = gradients.begin(unroll, path.remaining, path.exchanges)
    if statistics is not None:
        gradients.share(path.add_up(statistics))
    stats = stats_of(unroll)
    while path.place[:2] == (epoch, iteration):
        if path.push(gradients.gradient(path.place[2]), stats):
            stats = RolloutStats()  # sent only with the first gradient that is used


def stats_of(unroll: Mapping[str, Any]) -> RolloutStats:
    """Returns the statistics of an unroll."""
    steps, episodes = int(unroll["valid"].sum()), int(unroll["episodes"].sum())
    return RolloutStats(steps, episodes, unroll["episode_return"], unroll["moments"])


def _learn_from_rollouts(world: World, kind: type[RolloutGradients]) -> None:
    """Makes all updates from the rollouts of all samplers. Several learners average their gradients."""
    settings = world.settings
    network, distribution = world.actor_critic()
    learner = RolloutLearner(
        network, distribution, settings, kind, world.total_steps, world.device,
        exchanges=partial(kind.exchanges_per_rollout, world.spec, settings) if world.learners > 1 else None,
    )  # fmt: skip
    rollouts = world.rollouts(settings.aggregate, network, distribution, remaining=lambda: learner.remaining)
    run = world.run(algorithm=learner)

    def update(pushes: Sequence[UnrollPush] | None, reduce: Reduce) -> Mapping[str, float]:
        """Makes the updates of all learners from these rollouts."""
        lags = [rollouts.lag(push) for push in pushes or ()]
        unrolls: list[Any] = [push.unroll for push in pushes or ()]
        terms = learner.step(unrolls, reduce, leaving=world.stopping.is_set)
        for unroll, lag in zip(unrolls, lags, strict=True):
            stats = stats_of(unroll)
            run.count(stats.steps, stats.returns, episodes=stats.episodes, lag=lag)
        return terms

    run.train(rollouts.take, update)


def _learn_from_gradients(world: World, kind: type[RolloutGradients]) -> None:
    """Applies the gradients of samplers. The gradients of one update are reduced to one."""
    # Build the parameters, or in mode Async with several learners a slice of them.
    settings, learners = world.settings, world.learners
    network, _ = world.actor_critic()
    sliced = learners > 1 and settings.aggregate.mode == "Async"
    place = (world.index, learners) if sliced else (0, 1)
    server = ParameterServer(network, settings, world.total_steps, world.device, *place)
    gradients = world.gradients(
        settings.aggregate,
        server.parameters.numel(),
        exchanges=lambda: kind.exchanges_per_rollout(world.spec, settings, len(world.members("sampler"))),
        remaining=lambda: server.remaining,
        gather_state=server.collect,
    )
    run = world.run(algorithm=server)
    together = learners > 1 and not sliced
    moments: list[Tensor] = []  # moments of observations that are not merged yet

    def apply(pushes: Sequence[GradientPush], reduce: Reduce) -> Mapping[str, float]:
        """Makes one update from these gradients. Returns their mean loss terms."""
        nonlocal moments
        # Reduce the gradients, over all learners if each has a part of the samplers.
        steps, total = sum(push.steps for push in pushes), reduce if together else alone
        gradient = reduce_gradients(
            [push.gradient for push in pushes], [push.weight for push in pushes], settings.aggregate.reduction
        ).to(world.device) if pushes else torch.zeros_like(server.parameters)  # fmt: skip
        if together:
            weight = sum(push.weight for push in pushes)
            steps = average(gradient, weight, steps, reduce, settings.aggregate.reduction)
        server.apply(gradient, steps)

        # Record the experience, and end the rollouts if the policy has changed too much.
        for push in pushes if world.index == 0 or not sliced else ():
            run.count(push.steps, push.returns, episodes=push.episodes, lag=gradients.lag(push))
        moments += [push.moments for push in pushes]
        terms = mean_terms(pushes)
        ends = bool(pushes) and kind.ends_rollout(settings, terms)
        if together:
            ends = any_learner(ends, reduce, world.device)
        if ends:
            gradients.end_iteration()

        # Merge statistics only between rollouts: all epochs use the statistics of the sampler.
        merges = gradients.begins_rollout
        if together:
            merges = any_learner(merges and bool(moments), reduce, world.device)
        if merges:
            server.merge_moments(moments, total)
            moments = []
        return terms

    def update(pushes: Sequence[GradientPush] | None, reduce: Reduce) -> Mapping[str, float]:
        """Makes one update of all learners, or several updates of this learner's slice within ``FREE_RUN_SECONDS``."""
        terms = apply(pushes or (), reduce) if pushes or together else {}
        until = time.monotonic() + FREE_RUN_SECONDS
        while sliced and (left := until - time.monotonic()) > 0.0:
            run.publish(server.parameters)
            gradients.release()
            if more := gradients.take(left):
                terms = apply(more, reduce)
        return terms

    run.train(gradients.take, update)


def mean_terms(pushes: Sequence[GradientPush]) -> dict[str, float]:
    """Returns the means of the loss terms, weighted like the gradients."""
    if len(pushes) == 1:
        return pushes[0].terms
    total = sum(push.weight for push in pushes) or 1.0
    names = pushes[0].terms if pushes else {}
    return {name: sum(push.terms.get(name, 0.0) * push.weight for push in pushes) / total for name in names}
