"""Ape-X DPG: the gradients match the formulas, and the actor explores as configured."""

from __future__ import annotations

from functools import partial
from typing import Any

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
    collector_and_learner,
    ddpg,
    shake,
)
from bandit import Bandit
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from rltraining_api.algorithms import DdpgApex
from rltraining_trainer.algorithms.ddpg import DdpgActor, DdpgLearner
from rltraining_trainer.algorithms.exploration import GaussianNoise, OrnsteinUhlenbeckNoise
from rltraining_trainer.algorithms.transitions import Transitions
from rltraining_trainer.networks import DeterministicActorCritic, build_deterministic
from torch import Tensor


def q(network: DeterministicActorCritic, observation: Tensor, action: Tensor) -> Tensor:
    return network.value(network.critic_torso(observation), action)


def naive_gradients(learner: DdpgLearner, batch: Transitions, clip: float | None) -> tuple[list[Tensor], ...]:
    """Returns the mean gradients of the actor and of the critic, computed one transition at a time."""
    network, target = learner.network, learner._target
    critic_loss, actor_loss = torch.zeros(()), torch.zeros(())
    for i in range(B):
        s, a, after = (batch[name][i : i + 1] for name in ("observation", "action", "next_observation"))  # type: ignore[literal-required]
        with torch.no_grad():
            goal = batch["reward"][i] + batch["discount"][i] * q(target, after, target.actor(after))[0]
        critic_loss = critic_loss + WEIGHTS[i].float() / 3 * 0.5 * (goal - q(network, s, a)[0]) ** 2
        action = network.actor(s)
        free = action.detach().requires_grad_()
        (slope,) = torch.autograd.grad(q(network, s, free)[0], free)
        if clip is not None:
            slope = slope.clamp(-clip, clip)
        actor_loss = actor_loss - (slope * action).sum()  # unweighted
    critic = [p for name, p in network.named_parameters() if not name.startswith("actor.")]
    return (
        list(torch.autograd.grad(actor_loss / B, list(network.actor.parameters()))),
        list(torch.autograd.grad(critic_loss / B, critic)),
    )


@pytest.mark.parametrize("clip", [None, 0.05])
def test_the_gradients_are_those_of_the_formulas(clip: float | None) -> None:
    learner = ddpg(gradient_clip=None, action_gradient_clip=clip)
    learner.step(batch_for(learner, 1))  # so that networks and target networks differ
    batch = batch_for(learner)
    actor, critic = naive_gradients(learner, batch, clip)
    wanted = torch.cat([part.reshape(-1) for part in actor + critic])

    _, terms = learner.step(batch, WEIGHTS, 3.0)

    assert learner.parameters.grad is not None
    assert torch.allclose(learner.parameters.grad, wanted, rtol=1e-4, atol=1e-6), (
        "the actor's first, then the critic's"
    )
    for name, part in (("actor_gradient_norm", actor), ("critic_gradient_norm", critic)):
        norm = torch.cat([p.reshape(-1) for p in part]).norm().item()
        assert terms[name].item() == pytest.approx(norm, rel=1e-4)


def test_actor_and_critic_have_step_sizes_of_their_own() -> None:
    learner = ddpg(actor_learning_rate=1e-3, critic_learning_rate=1e-2)
    before = learner.parameters.detach().clone()
    learner.step(batch_for(learner))

    moved = (learner.parameters - before).abs().detach()
    size = sum(parameter.numel() for parameter in learner.network.actor.parameters())
    # Adam's first step is the learning rate, whatever the gradient.
    assert moved[:size].max().item() == pytest.approx(1e-3, rel=0.01)
    assert moved[size:].max().item() == pytest.approx(1e-2, rel=0.01)
    assert learner.learning_rate(10**6) == 1e-3


def actor(environments: int = 3, **settings: Any) -> DdpgActor:
    torch.manual_seed(0)
    box = spaces.Box(np.array([-2, 0], np.float32), np.array([2, 10], np.float32))
    network, actions = build_deterministic(NETWORK, OBSERVATION, box)
    shake(network)
    with torch.no_grad():
        for parameter in network.actor.parameters():
            parameter.mul_(0.1)  # away from the bounds
    found = DdpgActor(network, actions, DdpgApex(**settings))
    found.place(range(environments), environments)
    return found


@pytest.mark.parametrize(("warmup", "spread"), [("Random", 3**-0.5), ("Policy", 0.03)])
def test_actions_are_uniform_until_learning_begins_if_that_is_asked_for(warmup: str, spread: float) -> None:
    acting = actor(4000, warmup=warmup, exploration_noise=0.01)
    deviations = []
    for acting.warming_up in (True, False):
        acted = acting.act(torch.zeros(4000, 3), torch.ones(4000, dtype=torch.bool))
        deviations.append(acted.action.std().item())

    assert deviations[0] == pytest.approx(spread, rel=0.5)
    assert deviations[1] < 0.1


@pytest.mark.parametrize(("spread", "differ"), [(0.0, False), (1.0, True)])
def test_environments_differ_in_their_noise_only_with_a_spread(spread: float, differ: bool) -> None:
    """Otherwise the returns of all of them are reported."""
    assert actor(exploration_spread=spread).place(range(3), 3) is differ


@torch.no_grad()
def test_the_actor_knows_the_values_of_what_it_does() -> None:
    acting = actor()
    observation = torch.randn(3, 3)

    acted = acting.act(observation, torch.ones(3, dtype=torch.bool))

    best = acting._network.actor(observation)
    assert torch.allclose(acted.value_of_action, q(acting._network, observation, acted.action))
    assert torch.allclose(acted.value_of_state, q(acting._network, observation, best))
    assert torch.allclose(acted.value_of_state, acting.value(observation))
    assert not torch.allclose(acted.action, best)
    corners = torch.tensor([[-1.0, -1.0], [1.0, 1.0], [0.0, 0.0]])
    assert acting.to_environment(corners).tolist() == [[-2, 0], [2, 10], [0, 5]]


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "noise"),
    [("Gaussian", GaussianNoise()), ("OrnsteinUhlenbeck", OrnsteinUhlenbeckNoise())],
    ids=["gaussian", "ornstein-uhlenbeck"],
)
def test_each_environment_has_noise_of_its_own_scale(
    name: str, noise: GaussianNoise | OrnsteinUhlenbeckNoise
) -> None:
    acting = actor(noise=name, exploration_noise=0.2, exploration_spread=1.0)
    observation, scale = torch.randn(3, 3), 0.2 * 10 ** (-torch.arange(3) / 2)
    best = acting._network.actor(observation)

    for begins in (True, False):
        first, state = torch.full((3,), begins), torch.get_rng_state()
        found = acting.act(observation, first).action - best
        torch.set_rng_state(state)
        expected = scale[:, None] * noise.draw((3, DIMENSIONS), first)
        assert torch.allclose(found, expected, atol=1e-6)


@torch.no_grad()
def test_actions_stay_within_bounds() -> None:
    acting = actor(exploration_noise=5.0)
    drawn = acting.act(torch.randn(3, 3), torch.ones(3, dtype=torch.bool)).action
    assert drawn.abs().max() == 1.0


def test_a_bandit_is_learnt() -> None:
    settings = DdpgApex(
        actor_learning_rate=1e-3, critic_learning_rate=1e-2, target_update_period=20, exploration_noise=0.6
    )
    environments = SyncVectorEnv([partial(Bandit, continuous=True)] * 16)
    collector, learner = collector_and_learner(settings, environments, length=16)
    for _ in range(100):
        batch = collector.collect().transitions
        for _ in range(4):
            learner.step(batch)

    acting = collector.actor
    assert isinstance(acting, DdpgActor)
    with torch.no_grad():
        action = acting._network.actor(torch.tensor([[-1.0], [1.0]]))
    np.testing.assert_allclose(acting.to_environment(action), [[1.0], [3.0]], atol=0.15)
