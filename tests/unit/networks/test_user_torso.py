"""User networks: errors that are attributed to the user."""

from __future__ import annotations

import pytest
import torch
from rltraining_trainer.errors import UserCodeError
from rltraining_trainer.networks.user_torso import UserTorso
from torch import Tensor, nn


class Failing(nn.Module):
    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    def forward(self, observation: Tensor) -> Tensor:
        raise self.error


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("full"), torch.AcceleratorError("broken")], ids=repr
)
def test_an_error_of_the_gpu_is_not_reported_as_one_of_the_network(error: Exception) -> None:
    with pytest.raises(type(error)) as raised:
        UserTorso(Failing(error), "nets:make")(torch.zeros(1))
    assert raised.value is error


def test_dropout_is_active_only_while_gradients_are_computed() -> None:
    torso, ones = UserTorso(nn.Dropout(0.5), "nets:make"), torch.ones(100)

    def drops() -> bool:
        return not torch.equal(torso(ones), ones)

    assert drops()
    with torch.no_grad():
        assert not drops(), "when a sampler acts"
    assert drops()
    torso.eval()
    assert not drops(), "in a policy that is used with gradients"


class Log(nn.Module):
    def forward(self, observation: Tensor) -> Tensor:
        return observation.log()


class LogBeforeLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, observation: Tensor) -> Tensor:
        return self.fc(observation.log())


class LogAfterLayer(LogBeforeLayer):
    def forward(self, observation: Tensor) -> Tensor:
        return (self.fc(observation) * 0.0).log()


@pytest.mark.parametrize(
    ("module", "place"),
    [
        (
            nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.ReLU(), Log()), nn.Linear(3, 3)),
            "output of its layer '1.1' (Log)",
        ),
        (LogBeforeLayer(), "first in the input of its layer 'fc' (Linear)"),
        (LogAfterLayer(), "only in its output"),
    ],
)
def test_features_that_are_nan_name_the_network_and_the_layer(module: nn.Module, place: str) -> None:
    """Otherwise the learner's loss is NaN, with the advice to lower the learning rate."""
    torso, observation = UserTorso(module, "nets:make"), -torch.ones(2, 3)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(0.5)
        with pytest.raises(
            UserCodeError, match="the network of nets:make gives features that are NaN"
        ) as raised:
            torso(observation)
        assert place in str(raised.value)
        assert not any(layer._forward_hooks for layer in module.modules())


def test_features_that_are_nan_for_other_reasons_are_left_to_others() -> None:
    module, ones = nn.Linear(3, 3), torch.ones(2, 3)
    torso = UserTorso(module, "nets:make")
    with torch.no_grad():
        assert torso(ones * torch.nan).isnan().all(), "the environment is the cause"
        module.bias.fill_(torch.inf)
        assert torso(ones).isinf().all(), "the training has diverged"
