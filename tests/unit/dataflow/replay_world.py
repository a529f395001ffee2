"""Shards that live, die and become unresponsive, in one process and with a clock that only tests advance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from manual_clock import Clock
from rltraining_api.algorithms.replay import Replay
from rltraining_trainer.dataflow.replay import (
    Column,
    DistributedReplay,
    LocalPeer,
    ReplayBatch,
    ReplayBuffer,
    ReplayShard,
)
from rltraining_trainer.transport import Call, Payload, PeerLost

COLUMNS = {"value": Column((), torch.float64)}


class Unanswered(Call):
    """A call to a frozen peer. Waiting for the result only advances the clock."""

    def __init__(self, clock: Clock) -> None:
        super().__init__("a frozen peer", 0.0)
        self._clock = clock

    def result(self, stopping: object = None, timeout: float | None = None) -> Payload:
        if not self.done():
            self._clock.now += timeout or 0.0
        return super().result(timeout=0.0)


class Line:
    """The connection to a shard's process. A frozen process answers its calls once it thaws."""

    def __init__(self, shard: ReplayShard, clock: Clock) -> None:
        self._peer = LocalPeer(shard)
        self._clock = clock
        self.frozen = self.cut = False
        self.services: list[str] = []
        self._unanswered: list[tuple[Unanswered, str, Payload]] = []

    def call(self, service: str, payload: Payload, *, timeout: float | None = None) -> Call:
        self.services.append(service)
        if self.frozen:
            call = Unanswered(self._clock)
            self._unanswered.append((call, service, payload))
            return call
        if self.cut:
            lost = Call("a dead peer", 0.0)
            lost.settle(("lost", "connection reset"))
            return lost
        return self._peer.call(service, payload)

    def answer_one(self) -> None:
        """Answers the oldest unanswered call."""
        call, service, payload = self._unanswered.pop(0)
        call.settle(("ok", self._peer.call(service, payload).result(timeout=0.0)))

    def thaw(self) -> None:
        self.frozen = False
        while self._unanswered:
            self.answer_one()

    def die(self) -> None:
        self.cut, self.frozen = True, False
        for call, _, _ in self._unanswered:
            call.settle(("lost", "connection reset"))
        self._unanswered = []


class World:
    """One learner's replay, and shards by name."""

    def __init__(
        self, batch_size: int = 16, capacity: int = 64, kind: str = "Prioritized", **settings: Any
    ) -> None:
        self.clock = Clock(0.0)
        self.settings = Replay(**{"minimum": batch_size, "capacity": 100_000, "kind": kind, **settings})
        self.batch_size = batch_size
        self.capacity = capacity
        self.shards: dict[str, ReplayShard] = {}
        self.lines: dict[str, Line] = {}
        self._lives = 0
        self.replay = self.learner()

    def learner(self, seed: int = 0, item_bytes: int = 0) -> DistributedReplay:
        """Returns another learner's replay."""
        return DistributedReplay(
            self.dial, self.settings, self.batch_size, seed=seed, item_bytes=item_bytes, clock=self.clock
        )

    def dial(self, url: str) -> Line:
        if url not in self.lines:
            raise PeerLost(f"{url} cannot be dialled")
        return self.lines[url]

    def start(
        self, name: str, priorities: Sequence[float] = (), state: dict[str, Any] | None = None
    ) -> ReplayShard:
        """Starts a new incarnation of a shard, which announces itself."""
        self._lives += 1
        buffer = ReplayBuffer(
            self.capacity,
            COLUMNS,
            kind=self.settings.kind,
            priority_exponent=self.settings.priority_exponent,
            seed=self._lives,
        )
        shard = self.shards[name] = ReplayShard(buffer)
        shard.incarnation = f"life {self._lives}"
        if state is not None:
            shard.set_state(state)
        self.lines[self.url(name)] = Line(shard, self.clock)
        self.add(name, priorities)
        return shard

    def url(self, name: str) -> str:
        return f"{name}, {self.shards[name].incarnation}"

    def line(self, name: str) -> Line:
        return self.lines[self.url(name)]

    def add(self, name: str, priorities: Sequence[float]) -> None:
        """Adds items with their priority as value; then the shard announces itself."""
        weights = torch.tensor(priorities, dtype=torch.float64)
        self.shards[name].add({"value": weights}, weights)
        self.announce(name)

    def announce(self, name: str, *, served_before: bool = False) -> None:
        shard = self.shards[name]
        self.replay.announce(
            name, url=self.url(name), now=self.clock.now, served_before=served_before, **shard.describe()
        )


def draw(world: World, replay: DistributedReplay | None = None) -> ReplayBatch:
    replay = replay or world.replay
    batch = replay.next_batch(0.0)
    replay.check_valid()
    assert batch is not None, "there is no batch"
    return batch


def learn(world: World, batch: ReplayBatch, replay: DistributedReplay | None = None) -> None:
    """Returns a batch's priorities unchanged: each item's value is its priority."""
    replay = replay or world.replay
    replay.update(batch, batch.items["value"])
    replay.check_valid()


def settle(world: World) -> None:
    """Completes all requests in flight."""
    world.replay.set_share(10**6 - 1, 10**6)  # a learner that may not draw anything
    while (batch := world.replay.next_batch(0.0)) is not None:
        learn(world, batch)
    world.replay.next_batch(0.0)
    world.replay.check_valid()
