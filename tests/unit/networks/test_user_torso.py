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
