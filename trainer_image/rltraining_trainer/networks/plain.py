"""A network's torso and head as a plain function, for acting in one environment or a few."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from rltraining_trainer.networks.torsos import Mlp

Function = Callable[[Tensor], Tensor]


def plain_function(torso: nn.Module, head: nn.Linear) -> Function:
    """``head(torso(observation))``, with the memory that their parameters have now: values that change in place are seen.

    Our own fully connected layers are called without what ``nn.Module`` does around each call (it looks for attributes and
    hooks), which with few observations takes longer than the arithmetic. Any other module is called as it is.
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
