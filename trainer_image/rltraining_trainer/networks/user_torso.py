"""Wraps the user's network, so that its exceptions are reported as errors of user code."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rltraining_trainer.errors import user_code_error


class UserTorso(nn.Module):
    """Maps observations ``[N, ...]`` to features ``[N, F]`` with a module made by ``entry_point``.

    The module is in training mode while gradients are computed, and in evaluation mode otherwise. Dropout is therefore off
    when samplers act, and in policies.

    Converts exceptions to UserCodeError, except for errors of the GPU such as full memory, after
    which a restart may succeed.
    """

    def __init__(self, module: nn.Module, entry_point: str) -> None:
        super().__init__()
        self.module = module
        self.entry_point = entry_point

    def forward(self, observation: Tensor) -> Tensor:
        learns = self.training and torch.is_grad_enabled()
        try:
            if self.module.training != learns:
                self.module.train(learns)
            return self.module(observation)
        except (torch.OutOfMemoryError, torch.AcceleratorError):
            raise
        except BaseException as error:
            raise user_code_error(
                f"spec.network.entryPoint: the network of {self.entry_point}", error
            ) from error
