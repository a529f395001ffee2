"""Networks of the algorithms with twin critics, in plain torch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def mlp(layers: list[Tensor], inputs: Tensor) -> Tensor:
    """Returns the outputs ``[N, ...]`` of layers that are given as pairs of weight and bias."""
    hidden = inputs
    for weight, bias in zip(layers[0:-2:2], layers[1:-2:2], strict=True):
        hidden = torch.tanh(F.linear(hidden, weight, bias))
    return F.linear(hidden, *layers[-2:])


def q(layers: list[Tensor], observation: Tensor, action: Tensor) -> Tensor:
    """Returns Q(s, a) ``[N]``."""
    return mlp(layers, torch.cat([observation, action], 1))[:, 0]
