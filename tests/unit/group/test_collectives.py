"""Sums over a group of one, which use the same code path as all others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from datetime import timedelta
from unittest.mock import Mock

import pytest
import torch
import torch.distributed
from rltraining_trainer.group.collectives import Collectives, GroupChanged


@pytest.fixture
def alone() -> Iterator[Collectives]:
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
    yield collectives
    collectives.close()


def test_sums_of_one_size_and_several_types_each_have_their_own_precision(alone: Collectives) -> None:
    exact = [
        torch.tensor([1.5, 2.5]),
        torch.tensor([2**24 + 1, 2**40 + 1]),
        torch.tensor([1e300, 1 + 1e-12], dtype=torch.float64),
    ]
    for values in exact:
        total = values.clone()
        assert alone.sum(total, 3.0) == pytest.approx(3.0)
        assert torch.equal(total, values)


class Work:
    """gloo's handle for a collective that completes after a number of waits."""

    def __init__(self, waits: int) -> None:
        self.waits = waits

    def wait(self, timeout: timedelta | None = None) -> None:
        self.waits -= 1
        if not self.is_completed():
            raise RuntimeError("Operation timed out!")

    def is_completed(self) -> bool:
        return self.waits <= 0


@pytest.mark.parametrize(("waits", "lost"), [(1, False), (2, False), (3, True)])
def test_one_that_has_left_is_lost_only_if_the_collective_does_not_end_soon_after(
    alone: Collectives, monkeypatch: pytest.MonkeyPatch, waits: int, lost: bool
) -> None:
    """A member that has sent everything may leave while others still read."""
    monkeypatch.setattr(alone, "_others", [1])
    monkeypatch.setattr(alone, "_receive", Mock(side_effect=RuntimeError("Connection closed by peer")))
    work = Work(waits)
    with pytest.raises(GroupChanged, match="a learner was lost") if lost else nullcontext():
        alone._wait(lambda: work)
    work.waits = 0  # for the thread that waits for it
