"""Policy and value, each with its own torso or on a shared one, with an optional LSTM between torso and heads."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from rltraining_trainer.networks.half_precision import HalfPrecisionTorso, half_precision_torso
from rltraining_trainer.networks.normalizer import Normalizer
from rltraining_trainer.networks.plain import plain_function
from rltraining_trainer.networks.policy_network import PolicyNetwork, State
from rltraining_trainer.networks.torsos import orthogonal
from rltraining_trainer.networks.unpack import ActionMask


class ActorCritic(PolicyNetwork):
    """Policy parameters and state value of an observation.

    Args:
        torso: observations ``[N, ...]`` to features ``[N, features]``.
        features: how many.
        policy_size: how many numbers the policy head puts out (see ``Distribution.parameter_size``).
        gaussians: how many of these are log standard deviations that depend on no observation; they come last.
        lstm_size: hidden units of the LSTM, 0 for none.
        initial_log_std: what the log standard deviations of a gaussian begin with.
        value_torso: as ``torso``, for the value alone; None: both heads are on ``torso``. There is none with an LSTM.
        normalizer: what normalises observations in the torsos, and rewards.
        mask: which actions an observation makes invalid; None: none.
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
        # The policy's parameters are the first part of the flat vector, the value's own ones the rest.
        self.torso = torso
        self.lstm = nn.LSTMCell(features, lstm_size) if lstm_size else None
        inputs = lstm_size or features
        outputs = policy_size - gaussians
        # A nearly uniform first policy, and values that begin near zero.
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
        """``policy`` for who acts often: the same, of the same parameters, in less time if there is neither an LSTM nor a mask.

        Convolutions before discrete actions may be in bfloat16, then with the values that parameters have now: see
        ``half_precision_torso``."""
        if self.lstm is not None or self.mask is not None:
            return self.policy
        half = self._half = self._half or half_precision_torso(self.torso)
        if half is not None and self.log_std is None:
            half.refresh()
            return lambda observation, state, first: (self.policy_head(half(observation)), state)
        head = plain_function(self.torso, self.policy_head)
        return lambda observation, state, first: (self._with_deviations(head(observation)), state)

    def value(self, observation: Tensor, state: State) -> Tensor:
        """Values ``[B]`` of observations that go on from ``state``."""
        if self.value_torso is not None:
            features = self.value_torso(observation)
        else:
            features, _ = self._step(observation, state, None)
        return self.value_head(features).squeeze(-1)

    def unroll(self, observation: Tensor, state: State, first: Tensor) -> tuple[Tensor, Tensor]:
        """(policy parameters ``[T, B, P]``, values ``[T, B]``) of observations ``[T, B, ...]`` that go on from ``state``;
        ``first`` ``[T, B]`` bool says where an episode begins."""
        length, batch = observation.shape[:2]
        rows = observation.flatten(0, 1)
        features = self.torso(rows)
        if self.lstm is not None:
            features = self._unroll_lstm(features.unflatten(0, (length, batch)), state, first).flatten(0, 1)
        value_features = features if self.value_torso is None else self.value_torso(rows)
        parameters, value = self._policy_parameters(features, rows), self.value_head(value_features)
        return parameters.view(length, batch, -1), value.view(length, batch)

    @property
    def clip_sizes(self) -> tuple[int, ...]:
        """Sizes of the runs of the flat parameter vector whose gradients are clipped each by its own norm, in order.

        Policy and value are two runs where they share nothing: a large value loss then leaves the policy's gradient as it is.
        """
        size = sum(parameter.numel() for parameter in self.parameters())
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
            state = _forget(state, first)
        state = self.lstm(features, state)
        return state[0], state

    def _unroll_lstm(self, features: Tensor, state: State, first: Tensor) -> Tensor:
        outputs = []
        for step_features, step_first in zip(features.unbind(0), first.unbind(0), strict=True):
            state = self.lstm(step_features, _forget(state, step_first))  # type: ignore[misc]
            outputs.append(state[0])
        return torch.stack(outputs)

    def _policy_parameters(self, features: Tensor, observation: Tensor) -> Tensor:
        parameters = self._with_deviations(self.policy_head(features))
        return parameters if self.mask is None else self.mask(parameters, observation)

    def _with_deviations(self, parameters: Tensor) -> Tensor:
        """What the policy head puts out, and a Gaussian policy's log standard deviations."""
        if self.log_std is None:
            return parameters
        return torch.cat((parameters, self.log_std.expand(*parameters.shape[:-1], -1)), -1)


def _forget(state: State, first: Tensor) -> State:
    keep = (~first).unsqueeze(-1)
    return tuple(part * keep for part in state)
