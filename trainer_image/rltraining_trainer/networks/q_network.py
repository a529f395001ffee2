"""Values of discrete actions."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rltraining_trainer.networks.normalizer import Normalizer
from rltraining_trainer.networks.policy_network import PolicyNetwork, State
from rltraining_trainer.networks.torsos import orthogonal


class QNetwork(PolicyNetwork):
    """Q(s, a) of all n actions, ``[N, n]``.

    Args:
        torso: observations ``[N, ...]`` to features ``[N, features]``.
        features: how many.
        actions: n.
        dueling: Q(s, a) = V(s) + A(s, a) − mean over a' of A(s, a') (Wang et al. 2016, arXiv 1511.06581, equation 9). Both
            streams are one layer on the torso's features.
        normalizer: what normalises observations in the torso.
    """

    def __init__(
        self,
        torso: nn.Module,
        features: int,
        actions: int,
        *,
        dueling: bool,
        normalizer: Normalizer | None = None,
    ) -> None:
        super().__init__(normalizer)
        self.torso = torso
        self.head = orthogonal(nn.Linear(features, actions + dueling), 0.01)
        # V and A come out of one layer and are brought together by one product: the fewest operations.
        combine = torch.cat((torch.ones(1, actions), torch.eye(actions) - 1 / actions))
        self.register_buffer("_combine", combine if dueling else None, persistent=False)

    def forward(self, observation: Tensor) -> Tensor:
        values = self.head(self.torso(observation))
        return values if self._combine is None else values @ self._combine

    def policy(self, observation: Tensor, state: State, first: Tensor | None = None) -> tuple[Tensor, State]:
        return self(observation), state
