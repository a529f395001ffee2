"""The state of a block after a rollout, compared with a count step by step."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from rltraining_trainer.dataflow.block_state import BlockState, following

B, T = 3, 4


def rollout(first: list[bool], number: int) -> dict[str, Any]:
    """Returns T steps of B environments, with different actions in each rollout."""
    return {
        "action": torch.arange(T * B).reshape(T, B) + number * T * B,
        "observation": torch.full((T + 1, B), float(number)),
        "first": torch.tensor(first).reshape(T + 1, B),
    }


@given(st.lists(st.lists(st.booleans(), min_size=(T + 1) * B, max_size=(T + 1) * B), min_size=1, max_size=4))
def test_the_actions_of_present_episodes_are_kept(rollouts: list[list[bool]]) -> None:
    state: BlockState | None = None
    episodes: list[int] = [0] * B
    actions: list[list[int]] = [[] for _ in range(B)]
    for number, first in enumerate(rollouts):
        unroll = rollout(first, number)
        state = following(state, unroll, {"number": number})
        for t in range(T):
            for b in range(B):
                if unroll["first"][t + 1, b]:
                    episodes[b], actions[b] = episodes[b] + 1, []
                else:
                    actions[b].append(int(unroll["action"][t, b]))
        assert state.episodes.tolist() == episodes
        assert state.ages.tolist() == [len(taken) for taken in actions]
        assert len(state.actions) == max(map(len, actions))
        for b in range(B):
            assert state.actions[len(state.actions) - len(actions[b]) :, b].tolist() == actions[b]
        assert state.after == {"number": number}
        assert BlockState.from_payload(state.to_payload()) == state
