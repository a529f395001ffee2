"""Twin critics of continuous actions (Fujimoto et al. 2018, arXiv 1802.09477)."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Critic(nn.Module):
    """Computes Q(s, a) ``[N]`` from observations ``[N, ...]`` and actions ``[N, d]`` in [-1, 1].

    Args:
        torso: Maps observations to features ``[N, F]``.
        body: Maps these features and the actions ``[N, F + d]`` to the last features.
        features: Number of the last features.
    """

    def __init__(self, torso: nn.Module, body: nn.Module, features: int) -> None:
        super().__init__()
        self.torso, self.body, self.head = torso, body, nn.Linear(features, 1)

    def forward(self, observation: Tensor, action: Tensor) -> Tensor:
        return self.head(self.body(torch.cat((self.torso(observation), action), -1))).squeeze(-1)


class TwinCritics(nn.ModuleList):
    """Two critics without common parameters. The smaller of their values is less overestimated."""

    def forward(self, observation: Tensor, action: Tensor) -> Tensor:
        """Returns Q(s, a) of both ``[2, N]``."""
        return torch.stack([critic(observation, action) for critic in self])
