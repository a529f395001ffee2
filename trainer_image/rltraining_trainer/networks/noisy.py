"""Layers that explore by noise on their parameters."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

INITIAL_DEVIATION = 0.5
"""σ0, the initial standard deviation of the noise, times the square root of the number of inputs (section 3.2)."""


class NoisyLinear(nn.Linear):
    """A fully connected layer that adds noise to its parameters, with learned standard deviations Σ and σ.

        y = W x + b + f(η) (Σ (f(ξ) x) + σ),    f(x) = sign(x) √|x|,    ξ and η of standard deviation 1

    See Fortunato et al. 2018, arXiv 1706.10295, equations 9 to 11: factorised noise. As published, all rows of a batch have the
    same noise, unless ``separate_noise`` was called. With ``eval()`` there is no noise.
    """

    has_separate_noise = False

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        deviation = INITIAL_DEVIATION / math.sqrt(inputs)
        self.weight_deviation = nn.Parameter(torch.full((outputs, inputs), deviation))
        self.bias_deviation = nn.Parameter(torch.full((outputs,), deviation))

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return super().forward(x)
        sizes = self.in_features, self.out_features
        if self.has_separate_noise:
            factor_in, factor_out = (_factor(len(x), size, device=x.device) for size in sizes)
            noise = F.linear(factor_in * x, self.weight_deviation, self.bias_deviation)
            return super().forward(x) + factor_out * noise
        # Add the noise to the parameters, which takes less time than a second product with a large batch.
        factor_in, factor_out = (_factor(size, device=x.device) for size in sizes)
        weight = torch.addcmul(self.weight, torch.outer(factor_out, factor_in), self.weight_deviation)
        return F.linear(x, weight, torch.addcmul(self.bias, factor_out, self.bias_deviation))


def separate_noise(network: nn.Module) -> None:
    """Gives each row of a batch separate noise, so that environments in the same state explore differently."""
    for module in network.modules():
        if isinstance(module, NoisyLinear):
            module.has_separate_noise = True


def _factor(*shape: int, device: torch.device) -> Tensor:
    """Draws f(ξ) with torch's global generator."""
    noise = torch.randn(shape, device=device)
    return noise.sign() * noise.abs().sqrt()
