"""How much each of N environments explores: the schedules of Ape-X (Horgan et al. 2018, arXiv 1803.00933), and noise."""

from __future__ import annotations

import math

import torch
from torch import Tensor

OU_THETA = 0.15
"""θ of the Ornstein-Uhlenbeck process (Lillicrap et al. 2016, arXiv 1509.02971)."""


def apex_epsilon(base: float, alpha: float, environments: range, total: int) -> Tensor:
    """ε of ``environments`` out of ``total``, ``[len(environments)]``.

    ε_i = ε^(1 + α i/(N−1)) (section 4.1); ε if N is 1. Environments beyond N, of a sampler too many, are as the last.
    """
    return (base ** (1.0 + alpha * _place(environments, total))).float()


def noise_scale(largest: float, spread: float, environments: range, total: int) -> Tensor:
    """Standard deviation of the noise in ``environments`` out of ``total``, ``[len(environments)]``.

    σ_i = σ 10^(−spread i/(N−1)): a spread of 0 gives all the same, as in the appendix.
    """
    return (largest * 10.0 ** (-spread * _place(environments, total))).float()


class GaussianNoise:
    """Independent from step to step, with standard deviation 1."""

    memory: Tensor | None = None
    """Nothing."""

    def draw(self, shape: tuple[int, ...], first: Tensor) -> Tensor:
        """The next noise ``shape`` = ``[B, d]``; ``first`` ``[B]`` bool: an episode begins."""
        return torch.randn(shape)


class OrnsteinUhlenbeckNoise:
    """x ← (1 − θ) x + √(1 − (1−θ)²) ξ, with ξ of standard deviation 1 (Uhlenbeck and Ornstein 1930; θ .15 as in Lillicrap
    et al. 2016): correlated over 1/θ steps. Its standard deviation is 1 too, from an episode's first step on."""

    def __init__(self) -> None:
        self.memory: Tensor | None = None
        """The newest noise ``[B, d]``."""

    def draw(self, shape: tuple[int, ...], first: Tensor) -> Tensor:
        """The next noise ``shape`` = ``[B, d]``; ``first`` ``[B]`` bool: an episode begins, and forgets what was before."""
        fresh = torch.randn(shape)
        before, keep = self.memory if self.memory is not None else fresh, 1.0 - OU_THETA
        drifted = keep * before + math.sqrt(1.0 - keep**2) * fresh
        self.memory = torch.where(first.unsqueeze(-1), fresh, drifted)
        return self.memory


def _place(environments: range, total: int) -> Tensor:
    """i/(N−1), from 0 to 1, float64."""
    return (torch.tensor(list(environments), dtype=torch.float64) / max(total - 1, 1)).clamp(max=1.0)
