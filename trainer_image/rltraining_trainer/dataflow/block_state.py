"""The state of a block of environments between two rollouts, from which any sampler can continue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class BlockState:
    """B environments after R rows of steps. A sampler begins their episodes again and takes the same actions."""

    episodes: Tensor
    """``[B]`` int64, the number of each environment's episode."""
    ages: Tensor
    """``[B]`` int64, the number of rows since that episode began. The largest is R."""
    actions: Tensor
    """``[R, B, ...]``, the newest actions."""
    observation: Tensor
    """``[B, ...]``, the newest observation. Episodes that are played again must lead to it."""
    first: Tensor
    """``[B]`` bool, the observation begins an episode."""
    after: dict[str, Any]
    """Further state of the sampler, such as the recurrent state (see ``BlockCollector.after``)."""

    def to_payload(self) -> dict[str, Any]:
        """Returns the state for a message or a checkpoint."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def from_payload(cls, payload: dict[str, Any]) -> BlockState:
        """Inverts ``to_payload``."""
        return cls(**payload)


def following(state: BlockState | None, unroll: dict[str, Any], after: dict[str, Any]) -> BlockState:
    """Returns the state after one more rollout of T steps.

    Args:
        state: The state before. None: the block's beginning.
        unroll: Has the ``action``s ``[T, B, ...]`` that ``Stepper`` has taken, the newest ``observation``, and for T+1
            observations whether they are the ``first`` of an episode.
        after: See ``BlockState``.
    """
    # Count the episodes that began, and the rows since then.
    resets = unroll["first"][1:]
    rows = len(resets)
    since = resets.flip(0).int().argmax(0)  # rows after an environment's last reset
    before = state.ages if state is not None else torch.zeros_like(since)
    ages = torch.where(resets.any(0), since, before + rows)
    episodes = resets.sum(0) + (state.episodes if state is not None else 0)

    # Keep the actions of the oldest episode. Copies, so that the rollout can be freed.
    actions = unroll["action"] if state is None else torch.cat([state.actions, unroll["action"]])
    return BlockState(
        episodes=episodes,
        ages=ages,
        actions=actions[len(actions) - int(ages.max()) :].clone(),
        observation=unroll["observation"][-1].clone(),
        first=unroll["first"][-1].clone(),
        after=after,
    )
