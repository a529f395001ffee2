"""Samplers and a holder: one is a local loop, several learn as one process would, and they learn."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from bandit import OUTCOMES, bandit_collector
from gymnasium import spaces
from rltraining_api.algorithms import A2c, A3c, Adam, Optimizer, Ppo, Sgd
from rltraining_trainer.algorithms.actor_critic import AdvantageActorCritic
from rltraining_trainer.algorithms.holder import ParameterHolder
from rltraining_trainer.algorithms.ppo import ProximalPolicyOptimization
from rltraining_trainer.algorithms.returns import generalized_advantages
from rltraining_trainer.algorithms.rollout_gradients import RolloutGradients
from rltraining_trainer.algorithms.unrolls import Unroll
from rltraining_trainer.dataflow.flat import flatten_parameters, load_flat
from rltraining_trainer.networks import ActorCritic, Distribution
from rollouts import CONTINUOUS, DISCRETE, make_network, make_unroll, part_of
from torch import Tensor
from torch.optim.sgd import sgd as sgd_step

ADAM, SGD = Optimizer(adam=Adam()), Optimizer(sgd=Sgd())
Made = tuple[ActorCritic, Distribution]


def rollouts_of(settings: A3c | A2c | Ppo, made: Made) -> tuple[RolloutGradients, Tensor]:
    """A sampler's, and its parameters."""
    parameters = flatten_parameters(made[0])
    if isinstance(settings, Ppo):
        return ProximalPolicyOptimization(*made, settings, parameters), parameters
    return AdvantageActorCritic(*made, settings, parameters), parameters


def train(
    settings: A3c | A2c | Ppo, rounds: Sequence[Sequence[Unroll]], make: Callable[[], Made]
) -> tuple[Tensor, list[float]]:
    """(parameters, the losses) after rounds with a rollout of each sampler, whose gradients a holder applies as their mean."""
    holder = ParameterHolder(make()[0], settings, None)
    samplers = [rollouts_of(settings, make()) for _ in rounds[0]]
    losses = []
    for unrolls in rounds:
        for _, parameters in samplers:
            load_flat(parameters, holder.parameters)
        totals = [rollouts.begin(unroll) for (rollouts, _), unroll in zip(samplers, unrolls, strict=True)]
        if totals[0] is not None:
            shared = torch.stack([total for total in totals if total is not None]).sum(0)
            for rollouts, _ in samplers:
                rollouts.share(shared)
        for position in range(samplers[0][0].exchanges):
            made = [rollouts.gradient(position) for rollouts, _ in samplers]
            weight = sum(gradient.weight for gradient in made)
            mean = torch.stack([gradient.values * gradient.weight for gradient in made]).sum(0) / weight
            holder.apply(mean, int(weight))
            losses.append(sum(gradient.terms["loss"] * gradient.weight for gradient in made) / weight)
            for _, parameters in samplers:
                load_flat(parameters, holder.parameters)
    return holder.parameters, losses


@pytest.mark.parametrize(
    "settings",
    [
        A2c(learning_rate=0.01),
        A2c(learning_rate=0.01, advantage_normalization=True, n_step=3),
        A2c(optimizer=ADAM, learning_rate=0.01, gae_lambda=0.9),
        Ppo(minibatches=1, learning_rate=0.01),
        Ppo(minibatches=1, advantage_normalization=False, optimizer=SGD, learning_rate=0.01),
    ],
    ids=["a2c", "a2c, normalised, n-step", "a2c, adam, gae", "ppo", "ppo, sgd, not normalised"],
)
@pytest.mark.parametrize(
    ("action", "lstm"), [(DISCRETE, False), (CONTINUOUS, True)], ids=["categorical", "gaussian lstm"]
)
def test_samplers_learn_together_as_one_with_all_their_environments(
    settings: A2c | Ppo, action: spaces.Space, lstm: bool
) -> None:
    def make() -> Made:
        return make_network(action, lstm=lstm)

    unrolls = [make_unroll(*make(), seed=seed, batch=6) for seed in range(5)]
    for unroll in unrolls:
        unroll["valid"][2:, 1] = False  # so that samplers have not the same number of steps
    shares = (slice(0, 2), slice(2, 3), slice(3, 6))
    everything = slice(None)

    one, losses = train(settings, [[unroll] for unroll in unrolls], make)
    several, their_losses = train(
        settings, [[part_of(unroll, everything, share) for share in shares] for unroll in unrolls], make
    )

    assert torch.allclose(several, one, rtol=1e-5, atol=1e-5)
    assert their_losses == pytest.approx(losses, rel=1e-4, abs=1e-4)
    assert not torch.allclose(one, flatten_parameters(make()[0]), atol=1e-2), "and they do learn"


@pytest.mark.parametrize(
    ("action", "lstm"),
    [(DISCRETE, False), (DISCRETE, True), (CONTINUOUS, False)],
    ids=["mlp", "lstm", "gaussian"],
)
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_one_sampler_with_sgd_is_a_local_loop_bit_for_bit(
    action: spaces.Space, lstm: bool, momentum: float
) -> None:
    """The local loop is torch's optimizer on its own gradients, parameter by parameter."""
    optimizer = Optimizer(sgd=Sgd(momentum=momentum))
    settings = A3c(optimizer=optimizer, learning_rate=0.003, gradient_clip=None)

    def make() -> Made:
        return make_network(action, lstm=lstm)

    unrolls = [make_unroll(*make(), seed=seed) for seed in range(6)]

    found, _ = train(settings, [[unroll] for unroll in unrolls], make)

    network, distribution = make()
    parameters = [parameter.data for parameter in network.parameters()]
    buffers: list[Tensor | None] = [None for _ in parameters]
    for unroll in unrolls:
        network.zero_grad()
        a3c_loss(settings, network, distribution, unroll).backward()
        sgd_step(
            parameters,
            [parameter.grad for parameter in network.parameters()],  # type: ignore[misc]
            buffers,
            foreach=False,
            weight_decay=0.0,
            momentum=momentum,
            lr=settings.learning_rate,
            dampening=0.0,
            nesterov=False,
            maximize=False,
        )
    assert torch.equal(found, torch.cat([parameter.reshape(-1) for parameter in parameters]))


def a3c_loss(settings: A3c, network: ActorCritic, distribution: Distribution, unroll: Unroll) -> Tensor:
    """As a program of one process has it."""
    policies, values = network.unroll(unroll["observation"], unroll["state"], unroll["first"])
    log_prob, entropy = distribution.log_prob_and_entropy(policies[:-1], unroll["action"])
    known, weight = values.detach(), unroll["valid"].float()
    discounts = settings.discount * ~unroll["ended"]
    gain = generalized_advantages(unroll["reward"], discounts, known, 1.0, unroll["valid"])
    returns = gain + known[:-1]
    policy_loss = -(log_prob * gain * weight).sum()
    baseline_loss = (0.5 * (returns - values[:-1]).square() * weight).sum()
    return (
        policy_loss
        + settings.baseline_cost * baseline_loss
        - settings.entropy_cost * (entropy * weight).sum()
    )


@pytest.mark.parametrize(("continuous", "random", "good"), OUTCOMES)
@pytest.mark.parametrize(
    ("settings", "rollouts"),
    [
        (A3c(optimizer=ADAM, learning_rate=0.02, entropy_cost=0.0, loss_reduction="Mean"), 200),
        (Ppo(learning_rate=0.02, entropy_cost=0.0, clip_range=0.2), 40),
    ],
    ids=["a3c", "ppo"],
)
def test_a_bandit_is_learnt(
    settings: A3c | Ppo, rollouts: int, continuous: bool, random: float, good: float
) -> None:
    collector = bandit_collector(continuous, length=10, discount=settings.discount)
    made = (collector.network, collector.distribution)
    holder = ParameterHolder(copy.deepcopy(made[0]), settings, None)
    sampler, parameters = rollouts_of(settings, made)
    returns = []
    for _ in range(rollouts):
        unroll = collector.collect()
        returns.append(unroll["episode_return"].mean().item())
        totals = sampler.begin(unroll)
        if totals is not None:
            sampler.share(totals)
        for position in range(sampler.exchanges):
            holder.apply(sampler.gradient(position).values, 80)
            load_flat(parameters, holder.parameters)

    assert returns[0] == pytest.approx(random, abs=0.4)
    assert np.mean(returns[-10:]) > good
