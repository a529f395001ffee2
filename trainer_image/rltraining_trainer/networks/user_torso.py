"""Wraps the user's network, so that its exceptions and values that are NaN are reported as errors of user code."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from rltraining_trainer.errors import UserCodeError, user_code_error


class UserTorso(nn.Module):
    """Maps observations ``[N, ...]`` to features ``[N, F]`` with a module made by ``entry_point``.

    The module is in training mode while gradients are computed, and in evaluation mode otherwise. Dropout is therefore off
    when samplers act, and in policies.

    Converts exceptions to UserCodeError, except for errors of the GPU such as full memory, after
    which a restart may succeed. Raises UserCodeError if features are NaN or infinite although observations and parameters
    are not. This is checked on CPUs when no gradients are computed, so that samplers fail before the learner.
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
            features = self.module(observation)
        except (torch.OutOfMemoryError, torch.AcceleratorError):
            raise
        except BaseException as error:
            raise user_code_error(
                f"spec.network.entryPoint: the network of {self.entry_point}", error
            ) from error
        if self.training and not torch.is_grad_enabled() and features.device.type == "cpu":
            self._check(observation, features)
        return features

    def _check(self, observation: Tensor, features: Tensor) -> None:
        # A sum takes a few microseconds, and is not finite if a feature is not.
        if math.isfinite(float(features.sum())) or _all_finite([features]):
            return
        if not _all_finite([observation, *self.module.parameters()]):
            return  # the environment or the training is the cause, which others report
        raise UserCodeError(
            f"spec.network.entryPoint: the network of {self.entry_point} gives features that are NaN or infinite, although "
            f"observations and parameters are finite: {_first_not_finite(self.module, observation)}; limit the input of the "
            "operation that fails, such as a logarithm, a root or a division"
        )


def _all_finite(values: Iterable[Any]) -> bool:
    return all(bool(torch.isfinite(value).all()) for value in values if isinstance(value, Tensor))


def _first_not_finite(module: nn.Module, observation: Tensor) -> str:
    """Names the first layer with an input or output that is not finite. Applies the module again."""
    found: list[str] = []

    def note(name: str, layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if not found and not _all_finite(inputs):
            found.append(f"first in the input of its layer {name!r} ({type(layer).__name__})")
        elif not found and not _all_finite([output]):
            found.append(f"first in the output of its layer {name!r} ({type(layer).__name__})")

    hooks = [
        layer.register_forward_hook(partial(note, name)) for name, layer in module.named_modules() if name
    ]
    module(observation)
    for hook in hooks:
        hook.remove()
    return found[0] if found else "only in its output"
