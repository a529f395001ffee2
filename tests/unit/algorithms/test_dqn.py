"""Ape-X DQN: the gradient matches the formula, and the actor explores as configured."""

from __future__ import annotations

from itertools import product
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from apex_learners import (
    ACTIONS,
    NETWORK,
    OBSERVATION,
    WEIGHTS,
    B,
    adam,
    batch_for,
    collector_and_learner,
    dqn,
    shake,
)
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from rltraining_api.algorithms import DqnApex
from rltraining_trainer.algorithms.dqn import DqnActor, DqnLearner
from rltraining_trainer.algorithms.transitions import PRIORITY_EPSILON, Transitions
from rltraining_trainer.environments.pack_space import pack_space
from rltraining_trainer.environments.packed_space import PackedSpace
from rltraining_trainer.networks import build_q_network


def naive_loss(learner: DqnLearner, batch: Transitions, *, double_q: bool, huber: bool) -> torch.Tensor:
    """Returns the batch mean of w · loss(y − Q(s, a)), one transition at a time; the target is detached.

    Both networks have noise on their parameters, if any, which is drawn in the learner's order.
    """
    learner.network.train()
    with torch.no_grad():
        next_values = learner._target.train()(batch["next_observation"])
        selector = learner.network(batch["next_observation"]) if double_q else next_values
    values, total = learner.network(batch["observation"]), torch.zeros(())
    for i in range(B):
        target = batch["reward"][i] + batch["discount"][i] * next_values[i, selector[i].argmax()]
        error = target - values[i, batch["action"][i]]
        loss = 0.5 * error**2
        if huber and abs(error.item()) > 1:
            loss = error.abs() - 0.5
        total = total + WEIGHTS[i].float() / 3 * loss
    return total / B


@pytest.mark.parametrize("loss", ["Huber", "SquaredError"])
@pytest.mark.parametrize("double_q", [True, False])
@pytest.mark.parametrize("dueling", [True, False])
@pytest.mark.parametrize("noisy", [True, False])
def test_the_gradient_is_that_of_the_formula(noisy: bool, dueling: bool, double_q: bool, loss: str) -> None:
    settings = {"dueling": dueling, "double_q": double_q, "loss": loss, "gradient_clip": None}
    learner = dqn(**settings, noisy_layers=noisy)
    learner.step(batch_for(learner, 1))  # so that network and target network differ
    batch, state = batch_for(learner), torch.get_rng_state()
    expected = naive_loss(learner, batch, double_q=double_q, huber=loss == "Huber")
    wanted = torch.autograd.grad(expected, list(learner.network.parameters()))

    torch.set_rng_state(state)  # the same noise
    _, terms = learner.step(batch, WEIGHTS, 3.0)

    assert learner.parameters.grad is not None
    wanted_flat = torch.cat([part.reshape(-1) for part in wanted])
    assert torch.allclose(learner.parameters.grad, wanted_flat, rtol=1e-4, atol=1e-6)
    assert terms["loss"].item() == pytest.approx(expected.item(), rel=1e-5)
    assert terms["gradient_norm"].item() == pytest.approx(wanted_flat.norm().item(), rel=1e-4)


@pytest.mark.parametrize("double_q", [True, False])
@pytest.mark.parametrize("dueling", [True, False])
def test_the_gradient_of_quantiles_is_that_of_their_loss(dueling: bool, double_q: bool) -> None:
    learner = dqn(dueling=dueling, double_q=double_q, quantiles=5, gradient_clip=None)
    learner.step(batch_for(learner, 1))  # so that network and target network differ
    batch = batch_for(learner)
    # Compute loss and errors transition by transition.
    total, errors = torch.zeros(()), []
    for i in range(B):
        after, action = batch["next_observation"][i : i + 1], batch["action"][i]
        following = learner._target.quantiles(after)[0].detach()
        means = learner.network(after)[0] if double_q else following.mean(1)
        target = batch["reward"][i] + batch["discount"][i] * following[means.argmax()]
        found = learner.network.quantiles(batch["observation"][i : i + 1])[0, action]
        errors.append((target.mean() - found.mean()).item())
        total = total + WEIGHTS[i].float() / 3 * quantile_loss(target, found)
    wanted = torch.autograd.grad(total / B, list(learner.network.parameters()))

    priorities, terms = learner.step(batch, WEIGHTS, 3.0)

    assert learner.parameters.grad is not None
    wanted_flat = torch.cat([part.reshape(-1) for part in wanted])
    assert torch.allclose(learner.parameters.grad, wanted_flat, rtol=1e-4, atol=1e-6)
    assert terms["loss"].item() == pytest.approx((total / B).item(), rel=1e-5)
    assert priorities.tolist() == pytest.approx([abs(error) + PRIORITY_EPSILON for error in errors], rel=1e-4)


def quantile_loss(target: torch.Tensor, found: torch.Tensor) -> torch.Tensor:
    """Each quantile is compared with each sample of the target."""
    total = torch.zeros(())
    for i, quantile in enumerate(found):
        for sample in target:
            error = sample - quantile
            huber = 0.5 * error**2 if abs(error.item()) <= 1 else error.abs() - 0.5
            total = total + abs((i + 0.5) / len(found) - float(error.item() < 0)) * huber / len(target)
    return total


def test_the_value_of_an_action_is_the_mean_of_its_quantiles() -> None:
    network = dqn(quantiles=7).network
    observation = torch.randn(4, *OBSERVATION.shape)
    quantiles = network.quantiles(observation)
    assert quantiles.shape == (4, ACTIONS, 7)
    assert torch.allclose(network(observation), quantiles.mean(2))


def actor(epsilon: float, environments: int = 1000) -> DqnActor:
    torch.manual_seed(0)
    network, actions = build_q_network(NETWORK, OBSERVATION, spaces.Discrete(ACTIONS, start=5), dueling=True)
    shake(network)
    found = DqnActor(network, actions, DqnApex(exploration_epsilon=epsilon))
    found.place(range(environments), environments)
    return found


@torch.no_grad()
def test_the_actor_knows_the_values_of_what_it_does() -> None:
    acting = actor(0.5)
    observation = torch.randn(1000, 3)
    values = acting._network(observation)

    acted = acting.act(observation, torch.zeros(1000, dtype=torch.bool))

    assert acted.action.dtype == torch.int64
    assert torch.equal(acted.value_of_action, values.gather(1, acted.action[:, None])[:, 0])
    assert torch.equal(acted.value_of_state, values.amax(1))
    assert torch.equal(acted.value_of_state, acting.value(observation))
    assert acting.to_environment(torch.tensor([0, 3])).tolist() == [5, 8]


@torch.no_grad()
def test_each_environment_explores_by_its_own_epsilon() -> None:
    """Divides 10,000 environments into groups of 2,000, which explore similarly and see the same."""
    count, together = 10_000, 2000
    acting = actor(0.4, count)
    seen = torch.randn(count // together, 3)
    greedy = acting._network(seen).argmax(1, keepdim=True)
    action = acting.act(seen.repeat_interleave(together, 0), torch.zeros(count, dtype=torch.bool)).action
    draws = action.view(-1, together)

    explored = (draws != greedy).float().mean(1)

    epsilon = 0.4 ** (1 + 7 * torch.arange(count) / (count - 1))
    expected = epsilon.view(-1, together).mean(1) * (ACTIONS - 1) / ACTIONS
    assert torch.allclose(explored, expected, atol=0.04)
    others = torch.bincount(draws[0][draws[0] != greedy[0]], minlength=ACTIONS)
    assert others.max() < 1.3 * others[others > 0].min(), "all other actions alike"


@torch.no_grad()
def test_noise_on_parameters_replaces_random_actions() -> None:
    """All environments see the same. Each acts greedily with separate noise."""
    torch.manual_seed(0)
    network, greedy = build_q_network(
        NETWORK, OBSERVATION, spaces.Discrete(ACTIONS), dueling=True, noisy=True
    )
    acting = DqnActor(network, greedy, DqnApex(exploration_epsilon=1.0, noisy_layers=True))
    assert not acting.place(range(1000), 1000), "the returns of all environments are reported"

    acted = acting.act(torch.randn(1, 3).expand(1000, 3), torch.zeros(1000, dtype=torch.bool))

    assert torch.equal(acted.value_of_action, acted.value_of_state), "no action is random"
    assert torch.bincount(acted.action, minlength=ACTIONS).min() > 50


@torch.no_grad()
def test_only_valid_actions_are_drawn_and_all_of_them_alike() -> None:
    masks, draws = np.array([*product((0, 1), repeat=ACTIONS)][1:], np.uint8), 1000
    discrete = spaces.Discrete(ACTIONS)
    space, _ = pack_space(OBSERVATION, discrete, mask_in_info=True)
    assert isinstance(space, PackedSpace)
    assert space.mask is not None
    # Each mask with at least one valid action, `draws` times.
    space.seed(5)
    observation = np.repeat(space.sample()[None], len(masks) * draws, 0)
    space.part_of(observation, space.mask)[:] = masks.repeat(draws, 0)
    network, greedy = build_q_network(NETWORK, space, discrete, dueling=True)
    acting = DqnActor(network, greedy, DqnApex(exploration_epsilon=1.0, exploration_alpha=1e-9))
    acting.place(range(len(observation)), len(observation))
    torch.manual_seed(0)

    acted = acting.act(torch.from_numpy(observation), torch.zeros(len(observation), dtype=torch.bool))

    drawn = torch.nn.functional.one_hot(acted.action, ACTIONS).view(-1, draws, ACTIONS).sum(1)
    valid = torch.from_numpy(masks).float()
    assert (drawn[valid == 0] == 0).all()
    assert torch.allclose(drawn / draws, valid / valid.sum(1, keepdim=True), atol=0.06)


class Chain(gym.Env):
    """An environment with two states and two actions.

    In the first state, `go` leads to the second state. In the second state, `go` pays 1 and ends the
    episode. `stay` pays .1 and ends the episode in either state. Episodes are truncated at random in
    the second state.
    """

    observation_space = spaces.Discrete(2)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict]:
        super().reset(seed=seed)
        self.state = 0
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict]:
        if action == 0:
            return self.state, 0.1, True, False, {}
        if self.state == 1:
            return 1, 1.0, True, False, {}
        self.state = 1
        return 1, 0.0, False, bool(self.np_random.random() < 0.5), {}


@pytest.mark.parametrize("noisy", [False, True])
def test_values_of_a_chain_are_learnt_across_truncation(noisy: bool) -> None:
    settings = DqnApex(
        learning_rate=0.02,
        optimizer=adam(),
        n_step=1,
        discount=0.9,
        target_update_period=10,
        exploration_epsilon=1.0,
        noisy_layers=noisy,
    )
    collector, learner = collector_and_learner(settings, SyncVectorEnv([Chain] * 8), length=60)
    batch = collector.collect().transitions
    for _ in range(300):
        learner.step(batch)

    values = learner.network.eval()(torch.arange(2)).detach()
    assert torch.allclose(values, torch.tensor([[0.1, 0.9], [0.1, 1.0]]), atol=0.03), values
