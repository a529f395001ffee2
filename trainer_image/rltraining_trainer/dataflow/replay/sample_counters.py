"""Counters of all samples that a learner has requested."""

from __future__ import annotations

from typing import TypedDict

import torch
from torch import Tensor

from rltraining_trainer.dataflow.replay.requests import Request
from rltraining_trainer.dataflow.replay.shard_map import Shard


class SampleCountersState(TypedDict):
    """The part of SampleCounters that checkpoints contain."""

    drawn: int
    applied: int
    stale: int


class SampleCounters:
    """Counts each sample exactly once: drawn = applied + stale + lost + outstanding. Not thread-
    safe.

    A sample is outstanding from its request until the shard has acknowledged its new priority. It
    is requested, in use by the learner, pending, or being returned.
    """

    def __init__(self) -> None:
        self.drawn = self.applied = self.stale = self.lost = 0
        self.in_flight = 0
        """Samples that are requested, and priorities that are being returned."""
        # Sizes of the batches that the learner uses, by number.
        self._in_use: dict[int, int] = {}
        # Updates [3, k] to send with the next request.
        self._pending: dict[Shard, list[Tensor]] = {}

    @property
    def outstanding(self) -> int:
        pending = sum(update.shape[1] for updates in self._pending.values() for update in updates)
        return self.in_flight + pending + sum(self._in_use.values())

    @property
    def shards_with_updates(self) -> list[Shard]:
        """The shards with pending updates."""
        return list(self._pending)

    def on_send(self, request: Request) -> None:
        """Counts a request that is sent."""
        self.drawn += request.count
        self.in_flight += request.count + request.returned

    def on_answer(self, request: Request, drawn: int, applied: int, stale: int) -> None:
        """Counts an answered request: items drawn, priorities applied, and stale ones."""
        self.in_flight -= request.count + request.returned
        self.drawn -= request.count - drawn
        self.applied += applied
        self.stale += stale

    def on_loss(self, request: Request) -> None:
        """Counts a request that was not answered."""
        self.in_flight -= request.count + request.returned
        self.lost += request.count + request.returned

    def on_batch(self, number: int, size: int) -> None:
        """Counts a batch that is ready for the learner."""
        self._in_use[number] = size

    def on_batch_used(self, number: int) -> None:
        """Counts a batch as used. Raises ValueError if it is not in use."""
        if number not in self._in_use:
            raise ValueError(f"batch {number} is not in use: it was updated, or discarded, already")
        del self._in_use[number]

    def discard(self, number: int) -> None:
        """Counts the samples of a batch as lost. Raises ValueError if it is not in use."""
        size = self._in_use.get(number, 0)
        self.on_batch_used(number)
        self.lost += size

    def add_update(self, shard: Shard, update: Tensor) -> None:
        """Adds priorities, float64 ``[3, k]``, to send with the next request."""
        self._pending.setdefault(shard, []).append(update)

    def take_update(self, shard: Shard) -> Tensor | None:
        """Returns all pending priorities of the shard, float64 ``[3, k]``, and forgets them."""
        updates = self._pending.pop(shard, [])
        return torch.cat(updates, 1) if len(updates) > 1 else next(iter(updates), None)

    def on_shard_lost(self, shard: Shard) -> None:
        """Counts the pending priorities of the shard as lost."""
        self.lost += sum(update.shape[1] for update in self._pending.pop(shard, []))

    def get_state(self) -> SampleCountersState:
        return {"drawn": self.drawn, "applied": self.applied, "stale": self.stale}

    def set_state(self, state: SampleCountersState) -> None:
        """Continues the counters of a lost learner. Its outstanding samples count as lost."""
        self.drawn, self.applied, self.stale = state["drawn"], state["applied"], state["stale"]
        self.lost = self.drawn - self.applied - self.stale

    def check_valid(self) -> None:
        """Raises AssertionError with the violated invariant."""
        counts = (
            f"drawn {self.drawn}, applied {self.applied}, stale {self.stale}, lost {self.lost}, "
            f"outstanding {self.outstanding}"
        )
        smallest = min(self.drawn, self.applied, self.stale, self.lost, self.in_flight)
        assert smallest >= 0, f"a count is negative: {counts}"
        total = self.applied + self.stale + self.lost + self.outstanding
        assert self.drawn == total, f"a sample is not counted exactly once: {counts}"
