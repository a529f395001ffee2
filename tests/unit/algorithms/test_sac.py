"""SAC: updates match an independent reference in plain torch, and actions match the policy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import torch
from apex_learners import (
    DIMENSIONS,
    NETWORK,
    OBSERVATION,
    WEIGHTS,
    B,
    batch_for,
    sac,
    shake,
)
from gymnasium import spaces
from plain_networks import mlp, q
from rltraining_trainer.algorithms.sac import SacActor, SacNetwork, build_network
from rltraining_trainer.algorithms.transitions import Transitions
from torch import Tensor
from torch.distributions import Normal, TransformedDistribution
from torch.distributions.transforms import TanhTransform


class Copies(NamedTuple):
    """Layers of a network as pairs of weight and bias, which share no memory with it."""

    actor: list[Tensor]
    first: list[Tensor]
    second: list[Tensor]
    log_temperature: Tensor

    @classmethod
    def of(cls, network: SacNetwork) -> Copies:
        parts = (network.actor, *network.critics, network.temperature)
        actor, first, second, (log_temperature,) = (
            [parameter.detach().clone().requires_grad_() for parameter in part.parameters()] for part in parts
        )
        return cls(actor, first, second, log_temperature)


def act(layers: list[Tensor], observation: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Returns an action in [-1, 1] and its log-probability, in float64 where the logarithm needs it."""
    mean, log_std = mlp(layers, observation).double().split(DIMENSIONS, 1)
    std = log_std.clamp(-20, 2).exp()
    squashed = TransformedDistribution(Normal(mean, std), [TanhTransform()])
    action = torch.tanh(mean + std * noise)
    return action.float(), squashed.log_prob(action).sum(1).float()


class Losses(NamedTuple):
    critic: Tensor
    actor: Tensor
    temperature: Tensor
    errors: Tensor
    """Errors ``[2, B]``."""


def reference(
    net: Copies,
    target: Copies,
    batch: Transitions,
    weights: Tensor,
    noise: tuple[Tensor, Tensor],
    entropy: float,
) -> Losses:
    """Returns the mean losses of equations 5, 9 and 18."""
    s, after, stored = batch["observation"], batch["next_observation"], torch.tanh(batch["action"])
    alpha = net.log_temperature.exp()
    with torch.no_grad():
        action, log_prob = act(net.actor, after, noise[0])
        value = torch.minimum(q(target.first, after, action), q(target.second, after, action))
        y = batch["reward"] + batch["discount"] * (value - alpha * log_prob)
    errors = torch.stack([y - q(critic, s, stored) for critic in (net.first, net.second)])
    critic_loss = (0.5 * weights * errors**2).sum(0).mean()
    action, log_prob = act(net.actor, s, noise[1])
    value = torch.minimum(q(net.first, s, action), q(net.second, s, action))
    actor_loss = (alpha.detach() * log_prob - value).mean()
    temperature_loss = (-alpha * (log_prob.detach() + entropy)).mean()
    return Losses(critic_loss, actor_loss, temperature_loss, errors.detach())


@pytest.mark.parametrize("entropy", [None, -0.5], ids=["default", "given"])
def test_losses_and_gradients_are_those_of_an_independent_reference(entropy: float | None) -> None:
    learner = sac(target_entropy=entropy, target_update_rate=0.3)
    learner.step(batch_for(learner, 1))  # so that networks and target networks differ
    net, target, batch = Copies.of(learner.network), Copies.of(learner._target), batch_for(learner)
    state = torch.get_rng_state()
    noise = torch.randn(B, DIMENSIONS), torch.randn(B, DIMENSIONS)
    wanted = reference(net, target, batch, WEIGHTS.float() / 3, noise, -2.0 if entropy is None else entropy)
    critics = torch.autograd.grad(wanted.critic, [*net.first, *net.second])
    actor = torch.autograd.grad(wanted.actor, net.actor)
    temperature = torch.autograd.grad(wanted.temperature, net.log_temperature)

    torch.set_rng_state(state)
    priorities, terms = learner.step(batch, WEIGHTS, 3.0)

    for name in ("critic", "actor", "temperature"):
        expected = getattr(wanted, name).item()
        assert terms[f"{name}_loss"].item() == pytest.approx(expected, rel=1e-5, abs=1e-5), name
    gradient = torch.cat([part.reshape(-1) for part in (*actor, *temperature, *critics)])
    assert learner.parameters.grad is not None
    torch.testing.assert_close(learner.parameters.grad, gradient, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(priorities, wanted.errors.abs().mean(0) + 1e-6, rtol=1e-5, atol=1e-5)
    assert terms["temperature"].item() == pytest.approx(net.log_temperature.exp().item())


def test_each_part_is_updated_by_an_optimizer_and_the_target_follows() -> None:
    learner = sac(learning_rate=1e-3)
    before = learner.parameters.detach().clone()

    learner.step(batch_for(learner))

    moved = learner.parameters.detach() - before
    sizes = [
        sum(p.numel() for p in part.parameters()) for part in (learner.network.actor, learner.network.critics)
    ]
    for part in moved.split([sizes[0], 1, sizes[1]]):
        # Adam's first step is the learning rate, whatever the gradient.
        assert part.abs().max().item() == pytest.approx(1e-3, rel=0.01)
    torch.testing.assert_close(learner.get_state()["target"], before + 0.005 * moved)


@pytest.mark.parametrize(("target", "rises"), [(100.0, True), (-100.0, False)])
def test_the_temperature_rises_while_the_entropy_is_too_low(target: float, rises: bool) -> None:
    learner = sac(target_entropy=target, initial_temperature=0.5)
    assert learner.network.temperature.log.exp().item() == pytest.approx(0.5)
    for seed in range(3):
        learner.step(batch_for(learner, seed))
    assert (learner.network.temperature.log.exp().item() > 0.5) == rises


def actor(environments: int) -> SacActor:
    torch.manual_seed(0)
    box = spaces.Box(np.array([-2, 0], np.float32), np.array([2, 10], np.float32))
    network, actions = build_network(NETWORK, OBSERVATION, box)
    shake(network)
    return SacActor(network, actions)


@torch.no_grad()
def test_actions_are_uniform_within_their_bounds_until_learning_begins() -> None:
    acting, observation = actor(10_000), torch.randn(10_000, 3)
    first = torch.ones(10_000, dtype=torch.bool)

    random = acting.to_environment(acting.act(observation, first).action)
    acting.warming_up = False
    own = acting.to_environment(acting.act(observation, first).action)

    for actions in (random, own):
        assert (actions >= [-2, 0]).all()
        assert (actions <= [2, 10]).all()
    edges = np.linspace(0, 1, 11)
    shares = [
        np.histogram((random[:, i] - low) / width, edges)[0]
        for i, (low, width) in enumerate([(-2, 4), (0, 10)])
    ]
    assert np.abs(np.array(shares) - 1000).max() < 150
    assert abs(random.mean(0) - [0, 5]).max() < 0.15
    assert np.abs(np.histogram(own[:, 0], np.linspace(-2, 2, 11))[0] - 1000).max() > 300


@torch.no_grad()
def test_the_actor_estimates_soft_values() -> None:
    acting, observation = actor(3), torch.randn(3, 3)
    acting.warming_up = False
    network = Copies.of(acting._network)
    state = torch.get_rng_state()
    action, log_prob = act(network.actor, observation, torch.randn(3, DIMENSIONS))
    values = torch.minimum(q(network.first, observation, action), q(network.second, observation, action))
    soft = values - network.log_temperature.exp() * log_prob

    torch.set_rng_state(state)
    acted = acting.act(observation, torch.ones(3, dtype=torch.bool))
    torch.set_rng_state(state)
    value = acting.value(observation)

    torch.testing.assert_close(acted.action.tanh(), action, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(acted.value_of_action, values, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(acted.value_of_state, soft, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(value, soft, rtol=1e-4, atol=1e-4)
