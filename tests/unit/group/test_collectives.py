"""Sums over a group of one, which go the way of all others."""

from __future__ import annotations

import pytest
import torch
import torch.distributed
from rltraining_trainer.group.collectives import Collectives


def test_sums_of_one_size_and_several_types_each_have_their_own_precision() -> None:
    collectives = Collectives(
        torch.distributed.HashStore(),  # type: ignore[arg-type]
        0,
        1,
        host="127.0.0.1",
        backend="gloo",
        device=torch.device("cpu"),
        connect_seconds=5.0,
        seconds=5.0,
    )
    exact = [
        torch.tensor([1.5, 2.5]),
        torch.tensor([2**24 + 1, 2**40 + 1]),
        torch.tensor([1e300, 1 + 1e-12], dtype=torch.float64),
    ]
    for values in exact:
        total = values.clone()
        assert collectives.sum(total, 3.0) == pytest.approx(3.0)
        assert torch.equal(total, values)
    collectives.close()
