"""The user's network, so that what it raises is known as theirs."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rltraining_trainer.errors import user_code_error


class UserTorso(nn.Module):
    """``module``, which ``entry_point`` has made: observations ``[N, ...]`` to features ``[N, F]``.

    Raises UserCodeError when it raises, be it while acting or learning. What a GPU reports, its memory
    being full or itself broken, need be no mistake of theirs: another start may get on.
    """

    def __init__(self, module: nn.Module, entry_point: str) -> None:
        super().__init__()
        self.module = module
        self.entry_point = entry_point

    def forward(self, observation: Tensor) -> Tensor:
        try:
            return self.module(observation)
        except (torch.OutOfMemoryError, torch.AcceleratorError):
            raise
        except BaseException as error:
            raise user_code_error(
                f"spec.network.entryPoint: the network of {self.entry_point}", error
            ) from error
