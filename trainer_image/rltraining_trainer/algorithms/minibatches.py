"""Random minibatches of a rollout, for algorithms that learn from it in several epochs."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from rltraining_trainer.algorithms.unrolls import Unroll
from rltraining_trainer.errors import BadConfiguration
from rltraining_trainer.networks import ActorCritic


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

    For a network with an LSTM they are whole random environments, since an LSTM needs their steps in order.

    Args:
        network: computes the outputs of each minibatch.
        unroll: the rollout.
        count: number of minibatches per epoch.

    Raises:
        BadConfiguration: with an LSTM, there are fewer environments than minibatches.
    """

    figures: Tensor
    """``[4, T, B]``: log-probabilities, advantages, returns and old values. Set it before `get`."""

    def __init__(self, network: ActorCritic, unroll: Unroll, count: int) -> None:
        self.count = count
        self._network, self._unroll = network, unroll
        self._epoch: int | None = None
        self._order: Tensor  # the items in the order of the current epoch
        self._ordered: tuple[Tensor, Tensor]  # without an LSTM: actions and figures in that order
        # Choose what to split: steps, as t·B + b, or environments.
        valid = unroll["valid"]
        batch = valid.shape[1]
        if network.lstm is None:
            self._items = valid.flatten().nonzero().squeeze(1)
        elif batch >= count:
            self._items = torch.arange(batch, device=valid.device)
        else:
            raise BadConfiguration(
                "spec.environment.numEnvs: with an LSTM each minibatch needs at least one environment: "
                f"numEnvs ({batch}) must be >= spec.algorithm.ppo.minibatches ({count})"
            )

    def get(self, position: int) -> Minibatch | None:
        """Returns the minibatch with this index over all epochs, or None if it has no valid step."""
        epoch, part = divmod(position, self.count)
        if epoch != self._epoch:
            self._epoch = epoch
            self._shuffle()
        start, stop = (len(self._order) * end // self.count for end in (part, part + 1))
        if self._network.lstm is None:
            return self._of_steps(start, stop)
        return self._of_environments(self._order[start:stop])

    def _shuffle(self) -> None:
        """Shuffles the items. The order is drawn on the CPU, so it is the same on every device."""
        order = torch.randperm(len(self._items)).to(self._items.device)
        self._order = self._items.index_select(0, order)
        if self._network.lstm is None:
            # Reorder small columns once per epoch. Observations may be large and are gathered per
            # minibatch.
            action = self._unroll["action"].flatten(0, 1).index_select(0, self._order)
            self._ordered = action, self.figures.flatten(1).index_select(1, self._order)

    def _of_steps(self, start: int, stop: int) -> Minibatch | None:
        """Returns the steps from ``start`` to ``stop`` in the current order."""
        if start == stop:
            return None
        unroll, (action, figures) = self._unroll, self._ordered
        observation = unroll["observation"].flatten(0, 1).index_select(0, self._order[start:stop])
        first = unroll["first"][:1]  # ignored by a network without recurrent state
        policies, values = self._network.unroll(observation.unsqueeze(0), (), first)
        return Minibatch(policies[0], values[0], action[start:stop], *figures[:, start:stop].unbind())

    def _of_environments(self, environments: Tensor) -> Minibatch | None:
        """Returns the valid steps of these environments."""
        unroll, length = self._unroll, len(self._unroll["action"])
        steps = unroll["valid"].index_select(1, environments).flatten().nonzero().squeeze(1)
        if not len(steps):
            return None
        observation, first = (
            column[:length].index_select(1, environments)
            for column in (unroll["observation"], unroll["first"])
        )
        state = tuple(part.index_select(0, environments) for part in unroll["state"])
        policies, values = self._network.unroll(observation, state, first)
        action = unroll["action"].index_select(1, environments)
        figures = self.figures.index_select(2, environments)
        return Minibatch(
            *(column.flatten(0, 1).index_select(0, steps) for column in (policies, values, action)),
            *figures.flatten(1).index_select(1, steps),
        )
