"""ActorCritic: an unroll gives the same results as single steps."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rltraining_api.network import Lstm, Mlp, Network
from rltraining_trainer.dataflow import flatten_parameters
from rltraining_trainer.networks import ActorCritic, build_actor_critic

T, B = 12, 5


def network(action: spaces.Space, lstm: bool = True) -> ActorCritic:
    torch.manual_seed(0)
    spec = Network(mlp=Mlp(hidden_sizes=(8,)), lstm=Lstm(hidden_size=6) if lstm else None)
    return build_actor_critic(spec, spaces.Box(-1, 1, (3,), np.float32), action)[0]


ACTIONS = [spaces.Discrete(4), spaces.Box(-1, 1, (2,), np.float32)]


@pytest.mark.parametrize("lstm", [False, True], ids=["mlp", "lstm"])
@pytest.mark.parametrize("action", ACTIONS, ids=["discrete", "continuous"])
def test_an_unroll_is_one_step_after_the_other(action: spaces.Space, lstm: bool) -> None:
    net = network(action, lstm)
    observation, first = torch.randn(T, B, 3), torch.rand(T, B) < 0.3
    state = tuple(torch.randn_like(part) for part in net.initial_state(B))

    policies, values = net.unroll(observation, state, first)

    for t in range(T):
        forgotten = tuple(part * ~first[t].unsqueeze(-1) for part in state)
        value = net.value(observation[t], forgotten)
        policy, state = net.policy(observation[t], state, first[t])
        assert torch.allclose(policies[t], policy, atol=1e-6), f"policy at {t}"
        assert torch.allclose(values[t], value, atol=1e-6), f"value at {t}"


@pytest.mark.parametrize("lstm", [False, True], ids=["mlp", "lstm"])
@pytest.mark.parametrize("action", ACTIONS, ids=["discrete", "continuous"])
def test_acting_is_the_policy_also_after_an_update(action: spaces.Space, lstm: bool) -> None:
    net = network(action, lstm)
    flat, act = flatten_parameters(net), net.acting()
    observation, first = torch.randn(T, B, 3), torch.rand(T, B) < 0.3
    state = net.initial_state(B)

    with torch.no_grad():
        for t in range(T):
            flat += 0.01
            expected, after = net.policy(observation[t], state, first[t])
            found, state = act(observation[t], state, first[t])
            assert torch.allclose(found, expected, atol=1e-6), f"policy at {t}"
            assert all(torch.equal(one, other) for one, other in zip(state, after, strict=True))


def test_an_episode_knows_nothing_of_the_one_before() -> None:
    net = network(ACTIONS[0])
    episode, first = torch.randn(4, 1, 3), torch.zeros(9, 1, dtype=torch.bool)
    first[5] = True
    alone, _ = net.unroll(episode, net.initial_state(1), first[:4])
    for past in torch.randn(3, 5, 1, 3):
        after, _ = net.unroll(torch.cat((past, episode)), net.initial_state(1), first)
        assert torch.allclose(after[5:], alone, atol=1e-6)


def test_a_gaussian_policy_has_one_deviation_whatever_it_sees() -> None:
    net = network(ACTIONS[1])
    policy, _ = net.policy(torch.randn(B, 3), net.initial_state(B))

    assert policy.shape == (B, 4)
    assert torch.equal(policy[:, 2:], torch.zeros(B, 2)), "log standard deviations begin at 0"
    policy[:, 2:].sum().backward()
    assert net.log_std.grad.tolist() == [B, B], "and are learnt"


def test_every_parameter_learns() -> None:
    net = network(ACTIONS[1])
    policies, values = net.unroll(
        torch.randn(T, B, 3), net.initial_state(B), torch.zeros(T, B, dtype=torch.bool)
    )
    (policies.square().sum() + values.square().sum() + policies.sum()).backward()

    for name, parameter in net.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name
