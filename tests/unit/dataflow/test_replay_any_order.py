"""Every transition and every draw is counted, whatever happens in whatever order."""

from __future__ import annotations

import json

import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from replay_world import Line, World
from rltraining_trainer.dataflow.replay import ReplayBatch, ReplayShard
from soak import SOAK

NAMES = st.sampled_from(["a", "b", "c"])
BATCH = 8


class AnyOrder(RuleBasedStateMachine):
    """Three shards and a learner, all of which die, become unresponsive and return."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(
            batch_size=BATCH, capacity=12, importance_normalizer="Buffer", samples_per_insert=2.0
        )
        self.lives: list[ReplayShard] = []
        self.batches: list[ReplayBatch] = []
        self.saved = self.world.replay.get_state()

    @initialize()
    def begin(self) -> None:
        for name in "abc":
            self.restart(name)

    @rule(name=NAMES)
    def restart(self, name: str) -> None:
        if name in self.world.shards:
            self.world.line(name).die()
        self.lives.append(self.world.start(name, [1.0] * 5))

    @rule(name=NAMES)
    def restart_from_checkpoint(self, name: str) -> None:
        state = self.world.shards[name].get_state()
        self.world.line(name).die()
        self.lives.append(self.world.start(name, state=state))

    @rule(name=NAMES, count=st.integers(0, 15), priority=st.sampled_from([0.0, 0.5, 20.0]))
    def insert(self, name: str, count: int, priority: float) -> None:
        weights = torch.full((count,), priority, dtype=torch.float64)
        self.world.shards[name].add({"value": weights}, weights)

    @rule(name=NAMES)
    def announce(self, name: str) -> None:
        self.world.announce(name)
        self.world.replay.insert_limit(name)

    @rule(name=NAMES)
    def freeze(self, name: str) -> None:
        self.world.line(name).frozen = True

    @rule(name=NAMES)
    def thaw(self, name: str) -> None:
        self.world.line(name).thaw()

    @rule(name=NAMES)
    def break_connection(self, name: str) -> None:
        self.world.line(name).die()

    @rule(name=NAMES)
    def move(self, name: str) -> None:
        """Reopens the listener of the shard's process."""
        self.world.line(name).die()
        self.world.lines[self.world.url(name)] = Line(self.world.shards[name], self.world.clock)

    @rule(seconds=st.floats(0, 4))
    def pass_time(self, seconds: float) -> None:
        self.world.clock.now += seconds

    @rule()
    def next_batch(self) -> None:
        began = self.world.clock.now
        batch = self.world.replay.next_batch(0.0)
        assert self.world.clock.now == began, "it waited"
        if batch is not None:
            assert 0 < len(batch) <= BATCH
            assert all(len(column) == len(batch) for column in batch.items.values())
            assert sum(count for _, count in batch.shards) == len(batch)
            assert batch.largest_weight >= float(batch.weights.max())
            self.batches.append(batch)

    @precondition(lambda self: self.batches)
    @rule(priority=st.sampled_from([0.0, 1.0, 7.0]))
    def update(self, priority: float) -> None:
        batch = self.batches.pop(0)
        self.world.replay.update(batch, torch.full((len(batch),), priority))

    @precondition(lambda self: self.batches)
    @rule()
    def discard(self) -> None:
        self.world.replay.discard(self.batches.pop())

    @rule()
    def save(self) -> None:
        self.saved = json.loads(json.dumps(self.world.replay.get_state()))

    @rule()
    def restart_learner(self) -> None:
        self.world.replay.close()
        self.world.replay.check_valid()
        stats = self.world.replay.stats()
        assert (stats.shards, stats.outstanding) == (0, sum(map(len, self.batches)))
        assert self.world.replay.next_batch(0.0) is None
        self.world.replay = self.world.learner()
        self.world.replay.set_state(self.saved)
        self.batches = []

    @invariant()
    def everything_is_accounted_for(self) -> None:
        self.world.replay.check_valid()
        stats = self.world.replay.stats()
        assert stats.inserted == stats.evicted + stats.size + stats.lost
        assert stats.drawn == stats.applied + stats.stale + stats.priorities_lost + stats.outstanding
        assert stats.outstanding >= sum(map(len, self.batches))
        assert stats.size == sum(stats.sizes.values())
        assert stats.applied <= sum(shard.counts.applied for shard in self.lives)
        assert stats.stale <= sum(shard.counts.stale for shard in self.lives)
        assert stats.inserted <= sum(
            shard.counts.inserted - shard.describe()["resumed"][0] for shard in self.lives
        )
        for shard in self.world.shards.values():
            shard.check_valid()


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=25 * SOAK, stateful_step_count=40)
