"""Networks of the Ape-X algorithms: matching specs are built, others are rejected in one sentence."""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Callable

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rltraining_api.network import NatureCnn, Network
from rltraining_trainer.errors import BadConfiguration
from rltraining_trainer.networks import build_deterministic, build_q_network
from small_networks import IMPALA, MLP, NATURE, RECURRENT, as_stored
from torch import nn

USERS = Network(entry_point="users_network:make")
THREE = spaces.Discrete(3, start=2)
ARM = spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 10.0], np.float32))

FITTING = [
    (MLP, spaces.Box(-1, 1, (3,), np.float32)),
    (MLP, spaces.Box(-1, 1, (), np.float32)),
    (MLP, spaces.Discrete(4, start=-2)),
    (NATURE, spaces.Box(0, 255, (44, 44, 3), np.uint8)),
    (IMPALA, spaces.Box(0, 255, (24, 32, 3), np.uint8)),
    (USERS, spaces.Box(-1, 1, (3,), np.float32)),
]
fitting = pytest.mark.parametrize(
    ("network", "space"),
    FITTING,
    ids=lambda x: x.name if isinstance(x, Network) else f"{x.dtype}{x.shape}",
)


@pytest.fixture(autouse=True)
def users_network(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("users_network")
    module.make = lambda space: nn.Sequential(nn.Linear(space.shape[0], 9), nn.GELU())  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "users_network", module)


@pytest.mark.parametrize("dueling", [False, True])
@fitting
def test_a_q_network_values_every_action(network: Network, space: spaces.Space, dueling: bool) -> None:
    q_network, actions = build_q_network(network, space, THREE, dueling=dueling)

    values = q_network(as_stored(space, 6))

    assert values.shape == (6, 3)
    assert values.dtype == torch.float32
    chosen, state = q_network.policy(as_stored(space, 6), q_network.initial_state(6))
    assert (chosen.shape, state) == ((6, 3), ())
    assert set(actions.to_environment(actions.mode(chosen)).tolist()) <= {2, 3, 4}
    assert torch.equal(actions.sample(values, actions.noise(6)), values.argmax(1)), (
        "nothing is left to chance"
    )


def test_dueling_is_value_plus_advantage_less_its_mean() -> None:
    space = spaces.Box(-1, 1, (3,), np.float32)
    q_network, _ = build_q_network(MLP, space, THREE, dueling=True)
    for parameter in q_network.head.parameters():
        nn.init.normal_(parameter)
    observation = as_stored(space, 5)

    found = q_network(observation)

    features = q_network.torso(observation)
    value, advantage = q_network.head.value(features), q_network.head.advantage(features)  # type: ignore[operator,union-attr]
    assert torch.allclose(found, value + advantage - advantage.mean(1, keepdim=True), atol=1e-6)
    assert torch.allclose(found.mean(1), value[:, 0], atol=1e-6), "the mean over actions is the state's value"


@pytest.mark.parametrize(
    ("network", "space", "shared", "inputs", "hidden"),
    [
        (MLP, spaces.Box(-1, 1, (3,), np.float32), [(8, 3)], 8, 7),
        (
            Network(nature_cnn=NatureCnn()),
            spaces.Box(0, 255, (84, 84, 4), np.uint8),
            [(32, 4, 8, 8), (64, 32, 4, 4), (64, 64, 3, 3)],
            3136,
            512,
        ),
        (USERS, spaces.Box(-1, 1, (3,), np.float32), [(9, 3)], 9, 9),
    ],
    ids=["mlp", "published, images", "user's"],
)
def test_each_stream_of_a_dueling_network_has_its_hidden_layer(
    network: Network, space: spaces.Space, shared: list[tuple[int, ...]], inputs: int, hidden: int
) -> None:
    """Out of one linear layer, the Q-values would be the same as without dueling."""
    q_network, _ = build_q_network(network, space, THREE, dueling=True)

    sizes = [tuple(p.shape) for p in q_network.parameters() if p.dim() > 1]

    assert sizes == [*shared, (hidden, inputs), (1, hidden), (hidden, inputs), (3, hidden)]


@fitting
def test_an_actor_acts_within_bounds_and_a_critic_values_it(network: Network, space: spaces.Space) -> None:
    actor_critic, actions = build_deterministic(network, space, ARM)
    observation = as_stored(space, 6)

    action, state = actor_critic.policy(observation, actor_critic.initial_state(6))

    assert (action.shape, state) == ((6, 2), ())
    assert action.abs().max() < 0.5, "it begins near the middle"
    taken = actions.to_environment(actions.mode(action).detach())
    assert all(ARM.contains(a) for a in taken)
    value = actor_critic.value(actor_critic.critic_torso(observation), action)
    assert value.shape == (6,)
    action.sum().backward()
    assert all(name.startswith("actor.") for name, p in actor_critic.named_parameters() if p.grad is not None)
    names = [name for name, _ in actor_critic.named_parameters()]
    last_of_actor = max(i for i, name in enumerate(names) if name.startswith("actor."))
    assert last_of_actor + 1 == sum(name.startswith("actor.") for name in names), "the actor's come first"


def test_the_critic_of_an_mlp_takes_observation_and_action_together() -> None:
    actor_critic, _ = build_deterministic(MLP, spaces.Box(-1, 1, (3,), np.float32), ARM)
    sizes = [tuple(p.shape) for p in actor_critic.critic.parameters() if p.dim() == 2]
    assert sizes == [(8, 3 + 2), (7, 8), (1, 7)]
    assert not list(actor_critic.critic_torso.parameters())


Q: Callable = lambda network, space, actions: build_q_network(network, space, actions, dueling=True)  # noqa: E731
VECTOR = spaces.Box(-1, 1, (3,), np.float32)
HALF_BOUNDED = spaces.Box(np.array([-1, -np.inf], np.float32), np.array([1, 1], np.float32))


@pytest.mark.parametrize(
    ("build", "network", "actions", "sentence"),
    [
        (
            Q,
            MLP,
            ARM,
            r"spec\.algorithm\.dqnApex: it needs Discrete actions, but the environment's actions are Box\(.*\); "
            r"use sac, td3, ppo or impala",
        ),
        (
            build_deterministic,
            MLP,
            THREE,
            r"spec\.algorithm\.ddpgApex: it needs actions in a Box of floats, but the environment's actions are "
            r"Discrete\(3, start=2\); use dqnApex, r2d2, ppo or impala",
        ),
        (
            build_deterministic,
            MLP,
            spaces.Box(0, 9, (2,), np.int64),
            r"spec\.environment: actions of Box\(.*int64\) are not supported; use Discrete, MultiDiscrete, .*",
        ),
        (
            Q,
            MLP,
            spaces.MultiDiscrete([2, 3]),
            r"spec\.algorithm\.dqnApex: it needs Discrete actions, but the environment's actions are MultiDiscrete\(.*\); "
            r"use a2c, a3c, ppo or impala",
        ),
        (
            build_deterministic,
            MLP,
            HALF_BOUNDED,
            r"spec\.algorithm\.ddpgApex: it needs actions with bounds, but the environment's actions are Box\(.*\); "
            r"give its action space finite bounds, or use ppo or impala",
        ),
        (
            Q,
            RECURRENT,
            THREE,
            r"spec\.network\.lstm: dqnApex learns from single transitions, which have no recurrent state; "
            r"leave lstm out, or use ppo, a3c, a2c or impala",
        ),
        (build_deterministic, RECURRENT, ARM, r"spec\.network\.lstm: ddpgApex learns from .*"),
        (build_deterministic, NATURE, ARM, r"spec\.network\.natureCnn: it needs images, .*"),
    ],
    ids=range(8),
)
def test_what_does_not_fit_is_one_sentence(
    build: Callable, network: Network, actions: spaces.Space, sentence: str
) -> None:
    with pytest.raises(BadConfiguration) as caught:
        build(network, VECTOR, actions)

    assert re.fullmatch(sentence, str(caught.value)), str(caught.value)
