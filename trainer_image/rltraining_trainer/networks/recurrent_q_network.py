"""Values of discrete actions, from an LSTM."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from rltraining_trainer.networks.normalizer import Normalizer
from rltraining_trainer.networks.policy_network import PolicyNetwork, State, forget
from rltraining_trainer.networks.q_network import Dueling
from rltraining_trainer.networks.unpack import ActionMask


class RecurrentQNetwork(PolicyNetwork):
    """Computes Q(s, a) of all n actions, ``[N, n]``, from observations and a recurrent state.

    Args:
        torso: Maps observations ``[N, ...]`` to features ``[N, features]``.
        features: Number of features.
        lstm_size: Number of hidden units of the LSTM. ``Dueling`` streams follow it.
        actions: n, the number of actions.
        normalizer: Running statistics used in the torso.
        mask: Sets the values of invalid actions to ``MASKED``. None: all actions are valid.
    """

    def __init__(
        self,
        torso: nn.Module,
        features: int,
        lstm_size: int,
        actions: int,
        *,
        normalizer: Normalizer | None = None,
        mask: ActionMask | None = None,
    ) -> None:
        super().__init__(normalizer)
        self.torso, self.mask = torso, mask
        self.lstm = nn.LSTMCell(features, lstm_size)
        self.head = Dueling(nn.Linear(lstm_size, lstm_size), nn.ReLU(), actions)
        self.to_return: Callable[[Tensor], Tensor] | None = None
        """Maps values to returns, if the values are compressed."""

    def initial_state(self, batch: int) -> State:
        return (torch.zeros(batch, self.lstm.hidden_size), torch.zeros(batch, self.lstm.hidden_size))

    def policy(self, observation: Tensor, state: State, first: Tensor | None = None) -> tuple[Tensor, State]:
        if first is not None:
            state = forget(state, first)
        state = self.lstm(self.torso(observation), state)
        return self._values(state[0], observation), state

    def acting(self) -> Callable[[Tensor, State, Tensor | None], tuple[Tensor, State]]:
        return self.policy

    def value(self, observation: Tensor, state: State) -> Tensor:
        """Returns the returns ``[B]`` of the best actions in observations that follow ``state``."""
        best = self.policy(observation, state)[0].amax(-1)
        return best if self.to_return is None else self.to_return(best)

    def unroll(self, observation: Tensor, state: State, first: Tensor) -> tuple[Tensor, State]:
        """Returns values ``[T, B, n]`` of a sequence, and the recurrent state after it.

        Args:
            observation: ``[T, B, ...]``.
            state: Recurrent state before the first observation, ``[B, H]`` each.
            first: ``[T, B]`` bool, the observation begins an episode.
        """
        length, batch = observation.shape[:2]
        rows = observation.flatten(0, 1)
        outputs = []
        for features, begins in zip(self.torso(rows).view(length, batch, -1), first, strict=True):
            state = self.lstm(features, forget(state, begins))
            outputs.append(state[0])
        return self._values(torch.cat(outputs), rows).view(length, batch, -1), state

    def _values(self, outputs: Tensor, observation: Tensor) -> Tensor:
        values: Tensor = self.head(outputs)
        return values if self.mask is None else self.mask(values, observation)
