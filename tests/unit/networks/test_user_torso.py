"""User networks: errors that are attributed to the user."""

from __future__ import annotations

import pytest
import torch
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
