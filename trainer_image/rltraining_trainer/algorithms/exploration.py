"""Exploration in N environments: the schedules of Ape-X (Horgan et al. 2018, arXiv 1803.00933), and noise of actions."""

from __future__ import annotations

import math

import torch
from torch import Tensor

OU_THETA = 0.15
"""θ of the Ornstein-Uhlenbeck process (Lillicrap et al. 2016, arXiv 1509.02971)."""


def apex_epsilon(base: float, alpha: float, environments: range, total: int) -> Tensor:
    """Returns ε of ``environments`` out of ``total``, ``[len(environments)]``.

    ε_i = ε^(1 + α i/(N−1)) (section 4.1), or ε if N is 1. Environments beyond N, of a surplus sampler, get the last ε.
    """
    return (base ** (1.0 + alpha * _place(environments, total))).float()


def noise_scale(largest: float, spread: float, environments: range, total: int) -> Tensor:
    """Returns the standard deviation of the noise in ``environments`` out of ``total``, ``[len(environments)]``.

    σ_i = σ 10^(−spread i/(N−1)). With a spread of 0 all are equal, as in the appendix.
    """
    return (largest * 10.0 ** (-spread * _place(environments, total))).float()


class GaussianNoise:
    """Gaussian noise with standard deviation 1, independent from step to step."""

    memory: Tensor | None = None
    """None: the noise has no state between steps."""

    def draw(self, shape: tuple[int, ...], first: Tensor) -> Tensor:
        """Returns the next noise, of shape ``[B, d]``. ``first`` ``[B]`` bool: an episode begins."""
        return torch.randn(shape)


class OrnsteinUhlenbeckNoise:
    """Ornstein-Uhlenbeck noise (Uhlenbeck and Ornstein 1930) with θ = 0.15, as in Lillicrap et al. 2016.

        x ← (1 − θ) x + √(1 − (1−θ)²) ξ,    ξ of standard deviation 1

    It is correlated over 1/θ steps. Its standard deviation is 1 from the first step of an episode on.
    """

    def __init__(self) -> None:
        self.memory: Tensor | None = None
        """The noise ``[B, d]`` of the last step. None before the first step."""

    def draw(self, shape: tuple[int, ...], first: Tensor) -> Tensor:
        """Returns the next noise, of shape ``[B, d]``. ``first`` ``[B]`` bool: an episode begins, so the noise is reset."""
        fresh = torch.randn(shape)
        before, keep = self.memory if self.memory is not None else fresh, 1.0 - OU_THETA
        drifted = keep * before + math.sqrt(1.0 - keep**2) * fresh
        self.memory = torch.where(first.unsqueeze(-1), fresh, drifted)
        return self.memory


def _place(environments: range, total: int) -> Tensor:
    """Returns i/(N−1) of the environments, from 0 to 1, float64."""
    return (torch.tensor(list(environments), dtype=torch.float64) / max(total - 1, 1)).clamp(max=1.0)
