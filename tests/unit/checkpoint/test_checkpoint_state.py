"""snapshot: a copy for a checkpoint."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest
import torch
from rltraining_trainer.checkpoint import CheckpointError, snapshot


def test_a_snapshot_does_not_follow_later_changes() -> None:
    weight = torch.zeros(3, requires_grad=True)
    moments = {0: torch.ones(2)}
    state = {
        "network": OrderedDict(weight=weight),
        "optimizer": [moments, (1, 2.0)],
        "name": "impala",
        "none": None,
    }
    copy = snapshot(state)
    with torch.no_grad():
        weight.add_(1)
    moments[0].mul_(5)
    moments[1] = torch.ones(1)

    assert type(copy["network"]) is dict
    assert copy["network"]["weight"].tolist() == [0, 0, 0]
    assert not copy["network"]["weight"].requires_grad
    assert copy["optimizer"][0].keys() == {0}
    assert copy["optimizer"][0][0].tolist() == [1, 1]
    assert (copy["optimizer"][1], copy["name"], copy["none"]) == ((1, 2.0), "impala", None)


def test_a_snapshot_of_a_slice_takes_only_the_slice() -> None:
    flat = torch.zeros(1000)
    assert snapshot({"w": flat[:10]})["w"].untyped_storage().nbytes() == 40


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (
            {"a": {"b": [1, np.float64(2)]}},
            r"state\.a\.b\[1\] is a numpy\.float64; a checkpoint holds only tensors",
        ),
        ({"rng": np.zeros(3)}, r"state\.rng is a numpy\.ndarray"),
        ({"a": {1.5: 0}}, r"state\.a has the key 1\.5; keys must be strings or integers"),
        ({"f": print}, r"state\.f is a builtins\.builtin_function_or_method"),
    ],
)
def test_what_could_not_be_read_back_is_refused_with_its_path(state: dict, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        snapshot(state)
