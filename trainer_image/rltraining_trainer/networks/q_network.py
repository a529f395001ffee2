"""Values of discrete actions."""

from __future__ import annotations

import math

from torch import Tensor, nn

from rltraining_trainer.networks.normalizer import Normalizer
from rltraining_trainer.networks.policy_network import PolicyNetwork, State
from rltraining_trainer.networks.torsos import orthogonal
from rltraining_trainer.networks.unpack import ActionMask


class QNetwork(PolicyNetwork):
    """Q(s, a) of all n actions, ``[N, n]``.

    Args:
        torso: observations ``[N, ...]`` to features ``[N, features]``.
        features: how many.
        actions: n.
        dueling: see ``Dueling``; its two streams take the place of the torso's last hidden layer.
        normalizer: what normalises observations in the torso.
        mask: which actions an observation makes invalid, whose values then are ``MASKED``; None: none.
    """

    def __init__(
        self,
        torso: nn.Module,
        features: int,
        actions: int,
        *,
        dueling: bool,
        normalizer: Normalizer | None = None,
        mask: ActionMask | None = None,
    ) -> None:
        super().__init__(normalizer)
        self.mask = mask
        if dueling:
            self.torso, hidden, activation = _split(torso) or (
                torso,
                nn.Linear(features, features),
                nn.ReLU(),
            )
            self.head: nn.Module = Dueling(hidden, activation, actions)
        else:
            self.torso, self.head = torso, orthogonal(nn.Linear(features, actions), 0.01)

    def forward(self, observation: Tensor) -> Tensor:
        values: Tensor = self.head(self.torso(observation))
        return values if self.mask is None else self.mask(values, observation)

    def policy(self, observation: Tensor, state: State, first: Tensor | None = None) -> tuple[Tensor, State]:
        return self(observation), state


class Dueling(nn.Module):
    """Q(s, a) = V(s) + A(s, a) − mean over a' of A(s, a') (Wang et al. 2016, arXiv 1511.06581, equation 9).

    Value and advantages have a hidden layer each, of the size of ``hidden``, as published: 512 units on the convolutions of
    Mnih et al. 2015. Out of one linear layer the two would be no more than Q-values out of one.
    """

    def __init__(self, hidden: nn.Linear, activation: nn.Module, actions: int) -> None:
        super().__init__()

        def stream(outputs: int) -> nn.Sequential:
            layer = orthogonal(nn.Linear(hidden.in_features, hidden.out_features), math.sqrt(2))
            return nn.Sequential(layer, activation, orthogonal(nn.Linear(hidden.out_features, outputs), 0.01))

        self.value, self.advantage = stream(1), stream(actions)

    def forward(self, features: Tensor) -> Tensor:
        advantage = self.advantage(features)
        return self.value(features) + advantage - advantage.mean(1, keepdim=True)


def _split(torso: nn.Module) -> tuple[nn.Module, nn.Linear, nn.Module] | None:
    """The torso without its last hidden layer, that layer, and the activation after it. None: it does not end in one, or is the
    user's own."""
    if not isinstance(torso, nn.Sequential) or not len(torso):
        return None
    *before, last = torso
    if before and isinstance(before[-1], nn.Linear):
        return nn.Sequential(*before[:-1]), before[-1], last
    inner = _split(last)
    return inner and (nn.Sequential(*before, inner[0]), *inner[1:])
