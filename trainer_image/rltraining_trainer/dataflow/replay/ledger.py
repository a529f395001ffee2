"""What became of all that a learner on_sampled."""

from __future__ import annotations

from typing import TypedDict

import torch
from torch import Tensor

from rltraining_trainer.dataflow.replay.requests import Request
from rltraining_trainer.dataflow.replay.shard_map import Shard


class SampleCountersState(TypedDict):
    """What a checkpoint keeps of a SampleCounters."""

    drawn: int
    applied: int
    stale: int


class SampleCounters:
    """drawn = applied + stale + lost + outstanding, in draws, at all times. Not thread-safe.

    A draw is outstanding from the request for it until the shard has acknowledged the priority that came of it: asked for,
    in use by the learner, waiting to be returned, and on its way back.
    """

    def __init__(self) -> None:
        self.drawn = self.applied = self.stale = self.lost = 0
        self.under_way = 0
        """Draws that were asked for, and priorities on their way back."""
        self._in_use: dict[int, int] = {}  # batches that the learner has: their numbers and sizes
        self._waiting: dict[Shard, list[Tensor]] = {}  # priorities to return, [3, k] each

    @property
    def outstanding(self) -> int:
        waiting = sum(update.shape[1] for updates in self._waiting.values() for update in updates)
        return self.under_way + waiting + sum(self._in_use.values())

    @property
    def creditors(self) -> list[Shard]:
        """The shards for which priorities wait."""
        return list(self._waiting)

    def send(self, request: Request) -> None:
        """It goes out."""
        self.drawn += request.count
        self.under_way += request.count + request.returned

    def settle(self, request: Request, drawn: int, applied: int, stale: int) -> None:
        """It was answered: so many were drawn, which may be none, and so many priorities taken or dropped."""
        self.under_way -= request.count + request.returned
        self.drawn -= request.count - drawn
        self.applied += applied
        self.stale += stale

    def lose(self, request: Request) -> None:
        """It was not answered."""
        self.under_way -= request.count + request.returned
        self.lost += request.count + request.returned

    def hand_over(self, number: int, size: int) -> None:
        """The learner has a batch of `size` draws, or may have it when it likes."""
        self._in_use[number] = size

    def take_back(self, number: int) -> None:
        """The learner has done with it. Raises ValueError if it does not have it."""
        if number not in self._in_use:
            raise ValueError(f"batch {number} is not in use: it was updated, or discarded, already")
        del self._in_use[number]

    def discard(self, number: int) -> None:
        """The learner has no priorities for it. Raises ValueError if it does not have it."""
        size = self._in_use.get(number, 0)
        self.take_back(number)
        self.lost += size

    def owe(self, shard: Shard, update: Tensor) -> None:
        """Priorities, float64 [3, k], wait to be returned."""
        self._waiting.setdefault(shard, []).append(update)

    def collect(self, shard: Shard) -> Tensor | None:
        """All that wait for this shard, float64 [3, k]; they are on their way now."""
        updates = self._waiting.pop(shard, [])
        return torch.cat(updates, 1) if len(updates) > 1 else next(iter(updates), None)

    def forgive(self, shard: Shard) -> None:
        """The shard is gone, and what waited for it is lost."""
        self.lost += sum(update.shape[1] for update in self._waiting.pop(shard, []))

    def get_state(self) -> SampleCountersState:
        return {"drawn": self.drawn, "applied": self.applied, "stale": self.stale}

    def set_state(self, state: SampleCountersState) -> None:
        """Continue after a lost learner, whose outstanding draws are thereby lost."""
        self.drawn, self.applied, self.stale = state["drawn"], state["applied"], state["stale"]
        self.lost = self.drawn - self.applied - self.stale

    def check_valid(self) -> None:
        """Raises AssertionError, saying which, if an invariant does not hold."""
        counts = (
            f"drawn {self.drawn}, applied {self.applied}, stale {self.stale}, lost {self.lost}, "
            f"outstanding {self.outstanding}"
        )
        assert min(self.drawn, self.applied, self.stale, self.lost, self.under_way) >= 0, (
            f"a count is negative: {counts}"
        )
        assert self.drawn == self.applied + self.stale + self.lost + self.outstanding, (
            f"draws got lost: {counts}"
        )
