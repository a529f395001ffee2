"""The columns of a transition in the replay."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rltraining_trainer.algorithms.transitions import transition_columns
from rltraining_trainer.dataflow.replay import Column
from rltraining_trainer.errors import BadConfiguration

IMAGE = spaces.Box(0, 255, (4, 8, 8), np.uint8)
VECTOR = spaces.Box(-1, 1, (3,), np.float64)
NUMBER = Column((), torch.float32)


@pytest.mark.parametrize(
    ("observation", "action", "seen", "taken"),
    [
        (IMAGE, spaces.Discrete(3), Column((4, 8, 8), torch.uint8), Column((), torch.int64)),
        (VECTOR, spaces.Box(-1, 1, (2, 2)), Column((3,), torch.float32), Column((4,), torch.float32)),
        (spaces.Discrete(5), spaces.Discrete(2), Column((), torch.int64), Column((), torch.int64)),
    ],
    ids=["images", "vectors", "numbers"],
)
def test_a_transition_keeps_observations_in_their_type(
    observation: spaces.Space, action: spaces.Space, seen: Column, taken: Column
) -> None:
    assert transition_columns(observation, action) == {
        "observation": seen,
        "action": taken,
        "reward": NUMBER,
        "discount": NUMBER,
        "next_observation": seen,
    }


def test_observations_that_are_not_one_array_are_refused() -> None:
    with pytest.raises(BadConfiguration, match="FlattenObservation"):
        transition_columns(spaces.Dict({"a": VECTOR}), spaces.Discrete(2))


def test_actions_that_are_not_one_array_are_refused_by_their_name() -> None:
    with pytest.raises(BadConfiguration, match=r"actions of Dict.*use ppo, a2c, a3c or impala"):
        transition_columns(VECTOR, spaces.Dict({"a": VECTOR}))
