"""TD3: its updates match an independent reference in plain torch, and it acts with its noise."""

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
    shake,
    td3,
)
from gymnasium import spaces
from plain_networks import mlp, q
from rltraining_trainer.algorithms.td3 import Td3Actor, Td3Network, build_network
from torch import Tensor


class Copies(NamedTuple):
    """Layers of a network as pairs of weight and bias, which share no memory with it."""

    actor: list[Tensor]
    first: list[Tensor]
    second: list[Tensor]

    @classmethod
    def of(cls, network: Td3Network) -> Copies:
        parts = (network.actor, *network.critics)
        return cls(*([p.detach().clone().requires_grad_() for p in part.parameters()] for part in parts))


def test_losses_and_gradients_are_those_of_an_independent_reference() -> None:
    """Equations 10 and 14, and algorithm 1, with one update of the actor for each of the critics."""
    learner = td3(policy_delay=1, target_update_period=1, target_update_rate=0.3, target_noise=0.4)
    learner.step(batch_for(learner, 1))  # so that networks and target networks differ
    net, target, batch = Copies.of(learner.network), Copies.of(learner._target), batch_for(learner)
    s, after, weights = batch["observation"], batch["next_observation"], WEIGHTS.float() / 3
    state = torch.get_rng_state()
    noise = torch.clamp(0.4 * torch.randn(B, DIMENSIONS), -0.5, 0.5)
    assert (noise.abs() == 0.5).any()
    with torch.no_grad():
        action = torch.clamp(torch.tanh(mlp(target.actor, after)) + noise, -1, 1)
        value = torch.minimum(q(target.first, after, action), q(target.second, after, action))
        y = batch["reward"] + batch["discount"] * value
    errors = torch.stack([y - q(critic, s, batch["action"]) for critic in (net.first, net.second)])
    critic_loss = (0.5 * weights * errors**2).sum(0).mean()
    policy_value = q(net.first, s, torch.tanh(mlp(net.actor, s))).mean()
    critics = torch.autograd.grad(critic_loss, [*net.first, *net.second])
    actor = torch.autograd.grad(-policy_value, net.actor)

    torch.set_rng_state(state)
    priorities, terms = learner.step(batch, WEIGHTS, 3.0)

    assert terms["critic_loss"].item() == pytest.approx(critic_loss.item(), rel=1e-5)
    assert terms["policy_value"].item() == pytest.approx(policy_value.item(), rel=1e-5)
    gradient = torch.cat([part.reshape(-1) for part in (*actor, *critics)])
    assert learner.parameters.grad is not None
    torch.testing.assert_close(learner.parameters.grad, gradient, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(priorities, errors.detach().abs().mean(0) + 1e-6, rtol=1e-5, atol=1e-5)


def test_the_actor_and_the_targets_are_updated_after_every_second_update_of_the_critics() -> None:
    learner = td3(learning_rate=1e-3)
    actor_size = sum(p.numel() for p in learner.network.actor.parameters())
    target = learner.get_state()["target"].clone()

    for update in range(1, 5):
        before = learner.parameters.detach().clone()
        _, terms = learner.step(batch_for(learner, update))
        actor, critics = (learner.parameters.detach() - before).split([actor_size, len(before) - actor_size])
        assert critics.any()
        if update % 2 == 0:
            assert actor.any()
            target = target + 0.005 * (learner.parameters.detach() - target)
        else:
            assert not actor.any()
        torch.testing.assert_close(learner.get_state()["target"], target)
        for name in ("actor_gradient_norm", "policy_value"):
            assert (name in terms) == (update > 1), "that of the newest update of the actor"


def actor(environments: int, noise: float = 0.1) -> Td3Actor:
    torch.manual_seed(0)
    box = spaces.Box(np.array([-2, 0], np.float32), np.array([2, 10], np.float32))
    network, actions = build_network(NETWORK, OBSERVATION, box)
    shake(network)
    found = Td3Actor(network, actions, noise)
    found.place(range(environments), environments)
    return found


@torch.no_grad()
def test_actions_are_uniform_until_learning_begins_and_then_have_noise() -> None:
    acting, observation = actor(10_000), torch.randn(1, 3).expand(10_000, 3)
    first = torch.ones(10_000, dtype=torch.bool)

    random = acting.to_environment(acting.act(observation, first).action)
    acting.warming_up = False
    acted = acting.act(observation, first)

    edges = np.linspace(0, 1, 11)
    for i, (low, width) in enumerate([(-2, 4), (0, 10)]):
        assert np.abs(np.histogram((random[:, i] - low) / width, edges)[0] - 1000).max() < 150
    best = acting._network.actor(observation)
    assert (best.abs() < 0.75).all(), "so that the noise is rarely clipped"
    noise = acted.action - best
    np.testing.assert_allclose(noise.mean(0), 0.0, atol=0.005)
    np.testing.assert_allclose(noise.std(0), 0.1, atol=0.01)


@torch.no_grad()
def test_actions_with_noise_stay_within_their_bounds() -> None:
    acting = actor(1000, noise=5.0)
    acting.warming_up = False

    actions = acting.to_environment(
        acting.act(torch.randn(1000, 3), torch.ones(1000, dtype=torch.bool)).action
    )

    assert (actions >= [-2, 0]).all()
    assert (actions <= [2, 10]).all()
    assert (actions == [-2, 0]).any()


@torch.no_grad()
def test_the_values_of_the_actor_are_the_smaller_ones_of_both_critics() -> None:
    acting, observation = actor(3), torch.randn(3, 3)
    acting.warming_up = False
    network = Copies.of(acting._network)

    acted = acting.act(observation, torch.ones(3, dtype=torch.bool))

    best = torch.tanh(mlp(network.actor, observation))
    for action, value in ((acted.action, acted.value_of_action), (best, acted.value_of_state)):
        wanted = torch.minimum(q(network.first, observation, action), q(network.second, observation, action))
        torch.testing.assert_close(value, wanted, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(acting.value(observation), acted.value_of_state, rtol=1e-5, atol=1e-5)
