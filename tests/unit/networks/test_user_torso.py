"""Networks of one's own: whose mistake an error is."""

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
def test_what_a_gpu_reports_is_not_told_as_a_mistake_of_the_network(error: Exception) -> None:
    with pytest.raises(type(error)) as raised:
        UserTorso(Failing(error), "nets:make")(torch.zeros(1))
    assert raised.value is error


@pytest.mark.parametrize("error", [ValueError("odd"), SystemExit(3)], ids=repr)
def test_what_the_network_raises_is_its_mistake(error: BaseException) -> None:
    with pytest.raises(UserCodeError, match=r"spec\.network\.entryPoint: the network of nets:make raised"):
        UserTorso(Failing(error), "nets:make")(torch.zeros(1))
