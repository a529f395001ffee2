"""Values of discrete actions."""

from __future__ import annotations

import math

from torch import Tensor, nn

from rltraining_trainer.networks.noisy import NoisyLinear
from rltraining_trainer.networks.normalizer import Normalizer
from rltraining_trainer.networks.policy_network import PolicyNetwork, State
from rltraining_trainer.networks.torsos import ConvolutionalLayers, orthogonal
from rltraining_trainer.networks.unpack import ActionMask


class QNetwork(PolicyNetwork):
    """Computes Q(s, a) of all n actions, ``[N, n]``: the mean of K quantiles of the return, or with K = 1 the value itself.

    Args:
        torso: Maps observations ``[N, ...]`` to features ``[N, features]``.
        features: Number of features.
        actions: n, the number of actions.
        dueling: Whether to replace the torso's last hidden layer by the streams of ``Dueling``.
        normalizer: Running statistics used in the torso.
        quantiles: K (Dabney et al. 2018, arXiv 1710.10044).
        noisy: Whether the layers after the torso are ``NoisyLinear``.
        mask: Sets the values of invalid actions to ``MASKED``. None: all actions are valid.
    """

    def __init__(
        self,
        torso: nn.Module,
        features: int,
        actions: int,
        *,
        dueling: bool,
        quantiles: int = 1,
        noisy: bool = False,
        normalizer: Normalizer | None = None,
        mask: ActionMask | None = None,
    ) -> None:
        super().__init__(normalizer)
        self.mask, self._quantiles = mask, quantiles
        if dueling:
            self.torso, hidden, activation = _split(torso) or (
                torso,
                nn.Linear(features, features),
                nn.ReLU(),
            )
            self.head: nn.Module = Dueling(hidden, activation, actions, quantiles, noisy)
        else:
            self.torso, self.head = torso, _layer(features, actions * quantiles, 0.01, noisy)

    def quantiles(self, observation: Tensor) -> Tensor:
        """Returns the quantiles of the return of each action, ``[N, n, K]``, also of invalid actions."""
        return self.head(self.torso(observation)).unflatten(1, (-1, self._quantiles))

    def forward(self, observation: Tensor) -> Tensor:
        return self.mean(self.quantiles(observation), observation)

    def mean(self, quantiles: Tensor, observation: Tensor) -> Tensor:
        """Returns the values ``[N, n]`` of quantiles ``[N, n, K]``."""
        values = quantiles.mean(2) if self._quantiles > 1 else quantiles.squeeze(2)
        return values if self.mask is None else self.mask(values, observation)

    def policy(self, observation: Tensor, state: State, first: Tensor | None = None) -> tuple[Tensor, State]:
        return self(observation), state


class Dueling(nn.Module):
    """Computes Q(s, a) = V(s) + A(s, a) − mean over a' of A(s, a'), for each quantile.

    See Wang et al. 2016, arXiv 1511.06581, equation 9.

    As published, value and advantages each have a hidden layer, here of the size of ``hidden``.
    Without hidden layers the sum would be equivalent to a single linear layer.
    """

    def __init__(
        self,
        hidden: nn.Linear,
        activation: nn.Module,
        actions: int,
        quantiles: int = 1,
        noisy: bool = False,
    ) -> None:
        super().__init__()
        self._quantiles = quantiles

        def stream(outputs: int) -> nn.Sequential:
            layer = _layer(hidden.in_features, hidden.out_features, math.sqrt(2), noisy)
            return nn.Sequential(layer, activation, _layer(hidden.out_features, outputs, 0.01, noisy))

        self.value, self.advantage = stream(quantiles), stream(actions * quantiles)

    def forward(self, features: Tensor) -> Tensor:
        value = self.value(features).unsqueeze(1)
        advantage = self.advantage(features).unflatten(1, (-1, self._quantiles))
        return (value + advantage - advantage.mean(1, keepdim=True)).flatten(1)


def _layer(inputs: int, outputs: int, gain: float, noisy: bool) -> nn.Linear:
    return orthogonal((NoisyLinear if noisy else nn.Linear)(inputs, outputs), gain)


def _split(torso: nn.Module) -> tuple[nn.Module, nn.Linear, nn.Module] | None:
    """Splits a torso into the layers before its last hidden layer, that layer and its activation.

    Returns None if the torso does not end in a hidden layer or is user code.
    """
    if not isinstance(torso, nn.Sequential) or not len(torso):
        return None
    *before, last = torso
    if before and isinstance(hidden := before[-1], nn.Linear):
        if isinstance(torso, ConvolutionalLayers):
            return torso.first(len(before) - 1), hidden, last
        return nn.Sequential(*before[:-1]), hidden, last
    inner = _split(last)
    return inner and (nn.Sequential(*before, inner[0]), *inner[1:])
