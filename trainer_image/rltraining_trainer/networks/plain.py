"""Converts a network's torso and head to a plain function, for acting in a few environments."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from rltraining_trainer.networks.torsos import Mlp

Function = Callable[[Tensor], Tensor]


def plain_function(torso: nn.Module, head: nn.Linear) -> Function:
    """Returns a function that computes ``head(torso(observation))``.

    The function uses the current memory of the parameters, so in-place changes take effect. Fully
    connected layers of this package are called without the attribute and hook lookups of
    ``nn.Module``, which take longer than the arithmetic for few observations. Other modules are
    called unchanged.
    """
    functions = (*_functions(torso), _linear(head))

    def call(features: Tensor) -> Tensor:
        for function in functions:
            features = function(features)
        return features

    return call


def _functions(module: nn.Module) -> Iterator[Function]:
    if type(module) is Mlp:
        for layer in module:
            yield _linear(layer) if isinstance(layer, nn.Linear) else layer.forward
    elif type(module) is nn.Sequential and not (module._forward_pre_hooks or module._forward_hooks):
        for part in module:
            yield from _functions(part)
    else:
        yield module


def _linear(layer: nn.Linear) -> Function:
    bias, transposed = layer.bias, layer.weight.t()
    return lambda features: torch.addmm(bias, features, transposed)
