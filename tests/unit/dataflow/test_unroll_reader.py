"""Checks of the unrolls that samplers push, before the learner stacks them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from rltraining_trainer.dataflow import Source
from rltraining_trainer.dataflow.gradients import Push, UnrollReader
from rltraining_trainer.dataflow.gradients.accounts import Place

T, B, H = 4, 2, 3
READ = UnrollReader(length=T, observation_shape=(5,), action_shape=(), state_sizes=(H, H), moments_size=3)
PUSH = Push(Source("s", "a", 1), Place("x", 2), 7)


def make_unroll(**changes: Any) -> dict[str, Any]:
    """Returns a valid unroll with ``changes``."""
    rows = (T, B)
    unroll = {
        "observation": torch.zeros(T + 1, B, 5),
        "action": torch.zeros(rows, dtype=torch.int64),
        "log_prob": torch.zeros(rows),
        "reward": torch.zeros(rows),
        "ended": torch.zeros(rows, dtype=torch.bool),
        "valid": torch.ones(rows, dtype=torch.bool),
        "first": torch.zeros(T + 1, B, dtype=torch.bool),
        "state": (torch.zeros(B, H), torch.zeros(B, H)),
        "moments": torch.zeros(1, 3, dtype=torch.float64),
        "episodes": torch.ones(B, dtype=torch.int64),
        "episode_return": torch.zeros(1),
        "episode_length": torch.zeros(1),
    }
    return unroll | changes


def test_an_unroll_is_read_as_it_was_sent() -> None:
    unroll = make_unroll()
    read = READ(PUSH, {"unroll": unroll})
    assert read.unroll is unroll
    assert (read.source, read.place, read.version) == (PUSH.source, PUSH.place, PUSH.version)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("observation", torch.zeros(T, B, 5)),
        ("observation", torch.zeros(T + 1, B, 6)),
        ("action", torch.zeros(T, B, 1)),
        ("log_prob", torch.zeros(T, B + 1)),
        ("reward", torch.zeros(T, B, dtype=torch.float64)),
        ("ended", torch.zeros(T, B)),
        ("valid", torch.tensor(True)),
        ("valid", None),
        ("first", torch.zeros(T, B, dtype=torch.bool)),
        ("state", ()),
        ("state", (torch.zeros(B, H), torch.zeros(B, H + 1))),
        ("state", (torch.zeros(B, H), 7)),
        ("episodes", torch.ones(B + 1, dtype=torch.int64)),
        ("episode_return", torch.zeros(1, 1)),
        ("moments", torch.zeros(1, 3)),
        ("moments", torch.zeros(1, 5, dtype=torch.float64)),
    ],
)
def test_a_malformed_unroll_is_refused_with_the_name_of_the_field(name: str, value: Any) -> None:
    """Otherwise the unroll would end the learner's loop, and with it the run."""
    with pytest.raises((TypeError, ValueError), match=rf"the field (unroll\.)?{name} must"):
        READ(PUSH, {"unroll": make_unroll(**{name: value})})


@pytest.mark.parametrize("payload", [None, {}, {"unroll": []}])
def test_what_is_no_unroll_is_refused(payload: Any) -> None:
    with pytest.raises(TypeError, match="the field unroll must be"):
        READ(PUSH, payload)
