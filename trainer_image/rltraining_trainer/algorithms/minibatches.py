"""Random minibatches of a rollout, for algorithms that learn from it in several epochs."""

from __future__ import annotations

from typing import NamedTuple

import torch
from rltraining_api.algorithms import sequences_of
from torch import Tensor

from rltraining_trainer.algorithms.unrolls import Unroll
from rltraining_trainer.errors import BadConfiguration
from rltraining_trainer.networks import ActorCritic, State


class Minibatch(NamedTuple):
    """S steps: the current policy's outputs, which require gradients, and the rollout's data."""

    policies: Tensor
    """``[S, P]``"""
    values: Tensor
    """``[S]``"""
    action: Tensor
    """``[S, ...]``"""
    log_prob: Tensor
    """``[S]``, log-probabilities under the policy that acted."""
    advantages: Tensor
    """``[S]``"""
    returns: Tensor
    """``[S]``, targets of the values."""
    old_values: Tensor
    """``[S]``, values before the first update from the rollout."""


class Minibatches:
    """Splits each epoch of a rollout into ``count`` minibatches of random steps.

    For a network with an LSTM, which needs steps in order, they consist of random sequences instead. Each environment's
    rollout is cut into sequences. A sequence starts with the recurrent state that the network had before it at the start of the
    epoch: states of the first epoch made learning unstable later.

    Args:
        network: computes the outputs of each minibatch.
        unroll: the rollout.
        count: number of minibatches per epoch.
        length: steps of a sequence. The last sequence of an environment may be shorter.

    Raises:
        BadConfiguration: with an LSTM, there are fewer sequences than minibatches.
    """

    figures: Tensor
    """``[4, T, B]``: log-probabilities, advantages, returns and old values. Set it before `get`."""
    _states: State
    """With an LSTM: the states before all sequences, at the start of the epoch."""
    _length: int

    def __init__(self, network: ActorCritic, unroll: Unroll, count: int, length: int) -> None:
        self.count = count
        self._network, self._unroll = network, unroll
        self._epoch: int | None = None
        self._order: Tensor  # the items in the order of the current epoch
        self._ordered: tuple[Tensor, Tensor]  # without an LSTM: actions and figures in that order
        # Choose what to split: steps, as t·B + b, or sequences, as k·B + b.
        valid = unroll["valid"]
        if network.lstm is None:
            self._items = valid.flatten().nonzero().squeeze(1)
            return
        steps, environments = valid.shape
        sequences = sequences_of(steps, environments, length)
        if sequences < count:
            raise BadConfiguration(
                f"spec.algorithm.ppo.minibatches: with an LSTM each minibatch needs at least one sequence: {count} "
                f"minibatches do not go with {sequences} sequences of {length} steps. Set fewer minibatches, a smaller "
                "sequenceLength or more environments (spec.environment.numEnvs)"
            )
        self._items = torch.arange(sequences, device=valid.device)
        self._length = min(length, steps)

    def get(self, position: int) -> Minibatch | None:
        """Returns the minibatch with this index over all epochs, or None if it has no valid step."""
        epoch, part = divmod(position, self.count)
        if epoch != self._epoch:
            self._epoch = epoch
            self._shuffle()
        start, stop = (len(self._order) * end // self.count for end in (part, part + 1))
        if self._network.lstm is None:
            return self._of_steps(start, stop)
        return self._of_sequences(self._order[start:stop])

    def _shuffle(self) -> None:
        """Shuffles the items. The order is drawn on the CPU, so it is the same on every device."""
        order = torch.randperm(len(self._items)).to(self._items.device)
        self._order = self._items.index_select(0, order)
        if self._network.lstm is not None:
            self._states = self._current_states()
            return
        # Reorder small columns once per epoch. Observations may be large and are gathered per
        # minibatch.
        action = self._unroll["action"].flatten(0, 1).index_select(0, self._order)
        self._ordered = action, self.figures.flatten(1).index_select(1, self._order)

    def _current_states(self) -> State:
        """Returns the states that the network has before all sequences."""
        unroll, steps = self._unroll, len(self._unroll["valid"])
        if self._length == steps:
            return unroll["state"]
        observation, first = (unroll[name][:steps] for name in ("observation", "first"))
        with torch.no_grad():
            return self._network.states(observation, unroll["state"], first, self._length)

    def _of_steps(self, start: int, stop: int) -> Minibatch | None:
        """Returns the steps from ``start`` to ``stop`` in the current order."""
        if start == stop:
            return None
        unroll, (action, figures) = self._unroll, self._ordered
        observation = unroll["observation"].flatten(0, 1).index_select(0, self._order[start:stop])
        first = unroll["first"][:1]  # ignored by a network without recurrent state
        policies, values = self._network.unroll(observation.unsqueeze(0), (), first)
        return Minibatch(policies[0], values[0], action[start:stop], *figures[:, start:stop].unbind())

    def _of_sequences(self, sequences: Tensor) -> Minibatch | None:
        """Returns the valid steps of these sequences."""
        unroll, (end, batch) = self._unroll, self._unroll["valid"].shape
        # Find the rows of each sequence, [L, S]. Rows after the end of the rollout are replaced and not used.
        offsets = torch.arange(self._length, device=sequences.device).unsqueeze(1)
        rows, environments = sequences // batch * self._length + offsets, sequences % batch
        inside, rows = rows < end, rows.clamp(max=end - 1)
        steps = (unroll["valid"][rows, environments] & inside).flatten().nonzero().squeeze(1)
        if not len(steps):
            return None
        # Compute the outputs of all rows, and select the valid ones.
        observation, first, action = (
            unroll[name][rows, environments] for name in ("observation", "first", "action")
        )
        state = tuple(part.index_select(0, sequences) for part in self._states)
        policies, values = self._network.unroll(observation, state, first)
        return Minibatch(
            *(column.flatten(0, 1).index_select(0, steps) for column in (policies, values, action)),
            *self.figures[:, rows, environments].flatten(1).index_select(1, steps),
        )
