"""Overlapping sequences of steps, for recurrent networks that learn from a replay."""

from __future__ import annotations

from collections import deque
from typing import TypedDict

import numpy as np
import torch
from rltraining_api.algorithms import R2d2
from torch import Tensor

from rltraining_trainer.algorithms.n_step import n_step_transitions
from rltraining_trainer.algorithms.unrolls import Unroll


class Sequences(TypedDict):
    """K sequences of S steps, of which the first are burn-in."""

    observation: Tensor
    """``[K, S+1, ...]``."""
    first: Tensor
    """``[K, S+1]`` bool, the observation begins an episode."""
    action: Tensor
    """``[K, S]`` int64."""
    reward: Tensor
    """``[K, S]`` discounted rewards of the k ≤ n steps from here to the end of the episode or sequence."""
    discount: Tensor
    """``[K, S]`` γ^k, or 0 if nothing follows the k steps."""
    length: Tensor
    """``[K, S]`` int64 k."""
    valid: Tensor
    """``[K, S]`` bool, False where the environment only reset itself."""
    hidden: Tensor
    """``[K, H]``, the recurrent state before the sequence, like ``cell``."""
    cell: Tensor


class SequenceBuilder:
    """Joins consecutive unrolls of half a sequence to overlapping sequences."""

    def __init__(self, settings: R2d2) -> None:
        self._n_step, self._discount = settings.n_step, settings.discount
        count = (settings.burn_in_steps + settings.sequence_length) // (settings.sequence_length // 2)
        self._unrolls: deque[Unroll] = deque(maxlen=count)

    def add(self, unroll: Unroll) -> Sequences | None:
        """Returns the sequences that end with this unroll, one per environment. None: there are too few steps so far."""
        self._unrolls.append(unroll)
        if len(self._unrolls) < (self._unrolls.maxlen or 0):
            return None
        unrolls = list(self._unrolls)
        action, reward, ended, valid = (
            torch.cat([each[name] for each in unrolls]) for name in ("action", "reward", "ended", "valid")
        )
        observation, first = (
            torch.cat([*(each[name][:-1] for each in unrolls), unroll[name][-1:]])
            for name in ("observation", "first")
        )
        # The n steps stop before a row that is not a step, because its observation is the last one of an episode.
        cut = np.zeros(valid.shape, bool)
        cut[:-1] = ~valid[1:].numpy()
        n_step = n_step_transitions(reward.numpy(), ended.numpy(), cut, self._n_step, self._discount)
        returns, discounts, lengths = (torch.from_numpy(part) for part in n_step)
        hidden, cell = unrolls[0]["state"]
        columns = dict(
            observation=observation,
            first=first,
            action=action,
            reward=returns,
            discount=discounts,
            length=lengths,
            valid=valid,
        )
        rows = {name: column.transpose(0, 1).contiguous() for name, column in columns.items()}
        return Sequences(**rows, hidden=hidden, cell=cell)  # type: ignore[typeddict-item]
