"""Actor-critic networks with shared or separate torsos and an optional LSTM before the heads."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from rltraining_trainer.networks.half_precision import HalfPrecisionTorso, half_precision_torso
from rltraining_trainer.networks.normalizer import Normalizer
from rltraining_trainer.networks.plain import plain_function
from rltraining_trainer.networks.policy_network import PolicyNetwork, State, forget, parameter_count
from rltraining_trainer.networks.torsos import orthogonal
from rltraining_trainer.networks.unpack import ActionMask


class ActorCritic(PolicyNetwork):
    """Computes the policy's parameters and the state value of observations.

    Args:
        torso: Maps observations ``[N, ...]`` to features ``[N, features]``.
        features: Number of features.
        policy_size: Number of policy parameters (see ``Distribution.parameter_size``).
        gaussians: Number of state-independent log standard deviations, the last policy parameters.
        lstm_size: Number of hidden units of the LSTM, 0 for none.
        initial_log_std: Initial value of the log standard deviations.
        value_torso: Separate torso of the value head. None: both heads share ``torso``, which an
            LSTM requires.
        normalizer: Running statistics used in the torsos.
        mask: Masks invalid actions. None: all actions are valid.
    """

    def __init__(
        self,
        torso: nn.Module,
        features: int,
        policy_size: int,
        *,
        gaussians: int,
        lstm_size: int,
        initial_log_std: float = 0.0,
        value_torso: nn.Module | None = None,
        normalizer: Normalizer | None = None,
        mask: ActionMask | None = None,
    ) -> None:
        super().__init__(normalizer)
        self.mask = mask
        # Submodules in this order: the flat parameter vector holds the policy's parameters first
        # and then the parameters that only the value uses (see `clip_sizes`).
        self.torso = torso
        self.lstm = nn.LSTMCell(features, lstm_size) if lstm_size else None
        inputs = lstm_size or features
        outputs = policy_size - gaussians
        # Small initial weights give a nearly uniform policy.
        self.policy_head = orthogonal(nn.Linear(inputs, outputs), 0.01)
        self.log_std = nn.Parameter(torch.full((gaussians,), initial_log_std)) if gaussians else None
        self.value_torso = value_torso
        self.value_head = orthogonal(nn.Linear(inputs, 1), 1.0)
        self._half: HalfPrecisionTorso | None = None

    def initial_state(self, batch: int) -> State:
        if self.lstm is None:
            return ()
        return (torch.zeros(batch, self.lstm.hidden_size), torch.zeros(batch, self.lstm.hidden_size))

    def policy(self, observation: Tensor, state: State, first: Tensor | None = None) -> tuple[Tensor, State]:
        features, state = self._step(observation, state, first)
        return self._policy_parameters(features, observation), state

    def acting(self) -> Callable[[Tensor, State, Tensor | None], tuple[Tensor, State]]:
        """Returns a faster equivalent of ``policy`` for networks without an LSTM and a mask.

        Convolutions before discrete actions may run in bfloat16 with a copy of the current
        parameters (see ``half_precision_torso``). Other networks share the parameters.
        """
        if self.lstm is not None or self.mask is not None:
            return self.policy
        half = self._half = self._half or half_precision_torso(self.torso)
        if half is not None and self.log_std is None:
            half.refresh()
            return lambda observation, state, first: (self.policy_head(half(observation)), state)
        head = plain_function(self.torso, self.policy_head)
        return lambda observation, state, first: (self._with_deviations(head(observation)), state)

    def value(self, observation: Tensor, state: State) -> Tensor:
        """Returns values ``[B]`` of observations that follow ``state``."""
        if self.value_torso is not None:
            features = self.value_torso(observation)
        else:
            features, _ = self._step(observation, state, None)
        return self.value_head(features).squeeze(-1)

    def unroll(self, observation: Tensor, state: State, first: Tensor) -> tuple[Tensor, Tensor]:
        """Returns policy parameters ``[T, B, P]`` and values ``[T, B]`` of an unroll.

        Args:
            observation: ``[T, B, ...]``.
            state: Recurrent state before the first observation.
            first: ``[T, B]`` bool, the observation begins an episode.
        """
        length, batch = observation.shape[:2]
        rows = observation.flatten(0, 1)
        features = self.torso(rows)
        if self.lstm is not None:
            features = self._unroll_lstm(features.unflatten(0, (length, batch)), state, first).flatten(0, 1)
        value_features = features if self.value_torso is None else self.value_torso(rows)
        parameters, value = self._policy_parameters(features, rows), self.value_head(value_features)
        return parameters.view(length, batch, -1), value.view(length, batch)

    def states(self, observation: Tensor, state: State, first: Tensor, every: int) -> State:
        """Returns the recurrent states before the steps 0, ``every``, 2 · ``every``, ... of an unroll.

        Takes the arguments of ``unroll``. Each part of the result is ``[K · B, H]``, for K such steps.
        """
        assert self.lstm is not None
        found = []
        features = self.torso(observation.flatten(0, 1)).unflatten(0, first.shape)
        for step, (step_features, step_first) in enumerate(zip(features, first, strict=True)):
            if step % every == 0:
                found.append(state)
            state = self.lstm(step_features, forget(state, step_first))
        return tuple(torch.cat(parts) for parts in zip(*found, strict=True))

    @property
    def clip_sizes(self) -> tuple[int, ...]:
        """Sizes of the consecutive segments of the flat gradient that are clipped separately.

        Policy and value are separate segments if they share no parameters, so that a large value
        loss does not scale down the policy's gradient.
        """
        size = parameter_count(self)
        if self.value_torso is None:
            return (size,)
        shared = {id(parameter) for parameter in self.torso.parameters()}
        own = [*self.value_torso.parameters(), *self.value_head.parameters()]
        value_size = sum(parameter.numel() for parameter in own if id(parameter) not in shared)
        return (size - value_size, value_size)

    def _step(self, observation: Tensor, state: State, first: Tensor | None) -> tuple[Tensor, State]:
        features = self.torso(observation)
        if self.lstm is None:
            return features, state
        if first is not None:
            state = forget(state, first)
        state = self.lstm(features, state)
        return state[0], state

    def _unroll_lstm(self, features: Tensor, state: State, first: Tensor) -> Tensor:
        outputs = []
        for step_features, step_first in zip(features.unbind(0), first.unbind(0), strict=True):
            state = self.lstm(step_features, forget(state, step_first))  # type: ignore[misc]
            outputs.append(state[0])
        return torch.stack(outputs)

    def _policy_parameters(self, features: Tensor, observation: Tensor) -> Tensor:
        parameters = self._with_deviations(self.policy_head(features))
        return parameters if self.mask is None else self.mask(parameters, observation)

    def _with_deviations(self, parameters: Tensor) -> Tensor:
        """Appends the log standard deviations of a Gaussian policy to the policy head's output."""
        if self.log_std is None:
            return parameters
        return torch.cat((parameters, self.log_std.expand(*parameters.shape[:-1], -1)), -1)
