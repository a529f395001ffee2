"""plain_function computes the same numbers as the modules, from the same parameters."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from rltraining_trainer.networks.encoders import OneHot
from rltraining_trainer.networks.plain import plain_function
from rltraining_trainer.networks.torsos import ACTIVATIONS, AsFloat, Mlp
from torch import Tensor, nn
from torch.nn.utils import parametrizations

FEATURES = 5


class Users(nn.Module):
    """A user's module of unknown type: it averages a layer's outputs for three inputs ``[N, 3, 4]``."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, FEATURES)

    def forward(self, things: Tensor) -> Tensor:
        return self.layer(things).mean(1)


def hooked(when: str) -> nn.Module:
    torso = nn.Sequential(Mlp((4,), (FEATURES,), nn.Tanh))
    if when == "before":
        torso.register_forward_pre_hook(lambda module, inputs: (inputs[0] + 1,))
    else:
        torso.register_forward_hook(lambda module, inputs, output: output + 1)
    return torso


def shared() -> nn.Module:
    activation, layer = nn.Tanh(), nn.Linear(FEATURES, FEATURES)
    return nn.Sequential(nn.Linear(4, FEATURES), activation, layer, activation, layer)


@pytest.mark.parametrize(
    ("torso", "observation"),
    [
        *((Mlp((4,), (8, FEATURES), activation), torch.randn(1, 4)) for activation in ACTIVATIONS.values()),
        (Mlp((4,), (8, FEATURES), nn.Tanh), torch.randn(7, 4)),
        (Mlp((2, 2), (FEATURES,), nn.Tanh), torch.randn(3, 2, 2)),
        (Mlp((), (FEATURES,), nn.Tanh), torch.randn(3)),
        (nn.Sequential(AsFloat(), Mlp((4,), (FEATURES,), nn.Tanh)), torch.randint(9, (2, 4))),
        (
            nn.Sequential(OneHot(np.array([3]), np.array([1])), Mlp((3,), (FEATURES,), nn.Tanh)),
            torch.tensor([1, 3, 2]),
        ),
        (Users(), torch.randn(2, 3, 4)),
        (
            nn.Sequential(nn.Linear(4, FEATURES), nn.Flatten(), nn.Linear(3 * FEATURES, FEATURES)),
            torch.randn(2, 3, 4),
        ),
        (parametrizations.weight_norm(nn.Linear(4, FEATURES)), torch.randn(2, 4)),
        (shared(), torch.randn(2, 4)),
        (hooked("before"), torch.randn(2, 4)),
        (hooked("after"), torch.randn(2, 4)),
    ],
)
def test_it_computes_what_the_modules_do(torso: nn.Module, observation: Tensor) -> None:
    head, before = nn.Linear(FEATURES, 2), observation.clone()
    with torch.no_grad():
        expected = head(torso(observation))

        assert torch.allclose(plain_function(torso, head)(observation), expected, atol=1e-6), torso
    assert torch.equal(observation, before), "its input stays as it is"


def test_parameters_that_change_in_place_are_seen() -> None:
    torso, head, observation = Mlp((4,), (8,), nn.Tanh), nn.Linear(8, 2), torch.randn(1, 4)
    with torch.no_grad():
        function = plain_function(torso, head)
        before = function(observation)
        for parameter in (*torso.parameters(), *head.parameters()):
            parameter.add_(0.5)

        assert torch.allclose(function(observation), head(torso(observation)), atol=1e-6)
        assert not torch.allclose(function(observation), before)
