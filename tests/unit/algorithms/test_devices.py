"""A learner makes the same update on every device that this machine has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rltraining_api.algorithms import DdpgApex, DqnApex, Impala
from rltraining_api.network import Network
from rltraining_trainer.algorithms.ddpg import DdpgLearner
from rltraining_trainer.algorithms.dqn import DqnLearner
from rltraining_trainer.algorithms.impala import ImpalaLearner
from rltraining_trainer.dataflow import ModelServer
from rltraining_trainer.networks import build_actor_critic, build_deterministic, build_q_network

DEVICES = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
B, T = 8, 5
SEEN = spaces.Box(-1, 1, (3,), np.float32)
NETWORK = Network.model_validate({"mlp": {"hiddenSizes": [16]}})


def update(name: str, device: str) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Parameters after two updates, and the priorities of the second."""
    torch.manual_seed(0)
    discrete, continuous = spaces.Discrete(2), spaces.Box(-1, 1, (2,), np.float32)
    learner: Any
    if name == "impala":
        learner = ImpalaLearner(*build_actor_critic(NETWORK, SEEN, discrete), Impala(), None, device)
        for _ in range(2):
            learner.step([unroll()])
        return published(learner), None
    if name == "dqnApex":
        settings = DqnApex(target_update_period=1)
        learner = DqnLearner(build_q_network(NETWORK, SEEN, discrete, dueling=True)[0], settings, device)
    else:
        learner = DdpgLearner(
            build_deterministic(NETWORK, SEEN, continuous)[0], DdpgApex(target_update_period=1), device
        )
    for _ in range(2):
        priorities, _ = learner.step(transitions(name), torch.rand(B))
    return published(learner), priorities


def published(learner: Any) -> torch.Tensor:
    """The parameters as samplers get them."""
    models = ModelServer()
    models.publish(learner.parameters)
    parameters = models.newer_than(0)[1]
    assert parameters is not None
    return parameters


def transitions(name: str) -> Any:
    action = torch.randint(0, 2, (B,)) if name == "dqnApex" else torch.rand(B, 2)
    return {
        "observation": torch.randn(B, 3),
        "action": action,
        "reward": torch.randn(B),
        "discount": torch.rand(B),
        "next_observation": torch.randn(B, 3),
    }


def unroll() -> Any:
    return {
        "observation": torch.randn(T + 1, B, 3),
        "action": torch.randint(0, 2, (T, B)),
        "log_prob": -torch.rand(T, B),
        "reward": torch.randn(T, B),
        "ended": torch.rand(T, B) < 0.2,
        "valid": torch.ones(T, B, dtype=torch.bool),
        "first": torch.zeros(T + 1, B, dtype=torch.bool),
        "state": (),
        "episode_return": torch.zeros(0),
        "episode_length": torch.zeros(0, dtype=torch.int64),
    }


@pytest.mark.parametrize("name", ["impala", "dqnApex", "ddpgApex"])
@pytest.mark.parametrize("device", DEVICES)
def test_an_update_is_the_same_on_every_device(name: str, device: str) -> None:
    expected, expected_priorities = update(name, "cpu")
    found, priorities = update(name, device)

    assert found.device.type == "cpu", "samplers are on other machines"
    assert torch.allclose(found, expected, rtol=1e-3, atol=1e-5)
    if priorities is not None:
        assert priorities.device.type == "cpu"
        assert torch.allclose(priorities, expected_priorities, rtol=1e-3, atol=1e-5)
