"""Shards in separate processes, which are killed, frozen and outrun, while a learner continues to draw."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from replay_members import COLUMNS
from rltraining_api.algorithms.replay import Replay
from rltraining_api.contract import RENDEZVOUS_PATH
from rltraining_trainer.dataflow.replay import (
    DistributedReplay,
    LocalPeer,
    ReplayBatch,
    ReplayBuffer,
    ReplayShard,
    ShardPeer,
    distributed,
    requests,
)
from rltraining_trainer.dataflow.replay.rate_limiter import RateLimiter
from rltraining_trainer.transport import Endpoint, MemberServer, Payload
from transport_members import TOKEN
from transport_processes import HANG_SECONDS, Member, Start

BATCH = 64
MINIMUM = 200
CAPACITY = 2000


class Learner:
    """This process as a learner that receives the reports of shards."""

    def __init__(self, port: int = 0, *, kept: ReplayShard | None = None, **settings: Any) -> None:
        self.settings = Replay(minimum=MINIMUM, capacity=100 * CAPACITY, **settings)
        self.kept = kept
        services = {"report": self._report, **(kept.services if kept is not None else {})}
        self.endpoint = Endpoint("learner", TOKEN, services)
        self.replay = DistributedReplay(self._dial, self.settings, BATCH, seed=0)
        self.http = MemberServer(
            port, TOKEN, ready=lambda: True, documents={RENDEZVOUS_PATH: lambda: {"url": self.endpoint.url}}
        )
        self.endpoint.start()
        self.http.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.port}"

    def learn(self, batches: int, work: float = 0.0) -> None:
        """Samples this number of batches and returns their priorities."""
        deadline = time.monotonic() + HANG_SECONDS
        while batches:
            assert time.monotonic() < deadline, f"no batch comes: {self.replay.stats()}"
            batch = self.replay.next_batch(0.25)
            if batch is None:
                continue
            batches -= 1
            check(batch)
            self.replay.update(batch, torch.rand(len(batch)) + 0.1)
            if work:
                time.sleep(work)  # what an update costs

    def await_shards(self, count: int) -> None:
        """Waits for `count` shards with enough transitions to learn from."""
        deadline = time.monotonic() + HANG_SECONDS
        while self.replay.stats().shards != count or not self.replay.ready():
            assert time.monotonic() < deadline, f"there are {self.replay.stats()}"
            time.sleep(0.005)

    def await_restarts(self, count: int) -> None:
        deadline = time.monotonic() + HANG_SECONDS
        while self.replay.stats().restarted != count:
            assert time.monotonic() < deadline, f"there are {self.replay.stats()}"
            time.sleep(0.005)

    def settle(self) -> None:
        """Waits until no sample is outstanding."""
        self.replay.set_share(10**6 - 1, 10**6)
        deadline = time.monotonic() + HANG_SECONDS
        while self.replay.stats().outstanding:
            batch = self.replay.next_batch(0.05)
            if batch is not None:
                self.replay.update(batch, torch.ones(len(batch)))
            assert time.monotonic() < deadline, f"something never comes home: {self.replay.stats()}"
        self.replay.check_valid()

    def error(self) -> float:
        """Returns the difference between the draws made and the draws due."""
        stats = self.replay.stats()
        return self.limiter.error(stats.inserted, stats.drawn)

    @property
    def limiter(self) -> RateLimiter:
        return RateLimiter(self.settings.samples_per_insert, 0.1, MINIMUM, BATCH)

    def stop(self) -> None:
        self.replay.close()
        self.replay.check_valid()
        self.endpoint.stop()
        self.http.stop()

    def _dial(self, url: str) -> ShardPeer:
        if self.kept is not None and url == self.endpoint.url:
            return LocalPeer(self.kept)
        return self.endpoint.dial(url)

    def _report(self, sender: str, payload: Payload) -> Payload:
        assert isinstance(payload, dict)
        self.replay.announce(sender, now=time.monotonic(), **payload)
        return {"limit": self.replay.insert_limit(sender)}


def check(batch: ReplayBatch) -> None:
    """Checks that the batch's items are complete."""
    assert 0 < len(batch) <= BATCH
    number = batch.items["number"]
    assert (batch.items["observation"] == number[:, None]).all()
    assert torch.equal(number, batch.places[1].long()), "an item is not the insertion that it should be"
    assert bool((batch.weights > 0).all())


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Learner]]:
    """``make(**settings)`` returns a learner, which is closed after the test."""
    monkeypatch.setenv("TP_SOCKET_IFNAME", "lo")
    learners: list[Learner] = []

    def begin(*arguments: Any, **settings: Any) -> Learner:
        learners.append(Learner(*arguments, **settings))
        return learners[-1]

    yield begin
    for learner in learners:
        learner.stop()


def inserted_at_the_end(members: list[Member]) -> int:
    """Stops the members. Returns how many transitions they have inserted."""
    for member in members:
        member.kill(signal.SIGTERM)
    total = 0
    for member in members:
        line = member.hear()
        total += int(line if line != "open" else member.hear())
    return total


def test_killed_shards_hold_nobody_up_and_all_is_accounted_for(
    start: Start, make: Callable[..., Learner], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in (requests, "CALL_SECONDS"), (distributed, "SILENT_SECONDS"):
        # Waiting for a dead shard would show as a hang.
        monkeypatch.setattr(module, name, 10 * HANG_SECONDS)
    learner = make()
    keepers = [start("keeper", learner.url, f"shard-{index}", CAPACITY, 32, 0.002) for index in range(3)]
    learner.await_shards(3)
    for round_ in range(6):
        victim = round_ % 3
        keepers[victim].kill()  # in mid-sample: two batches are always under way
        learner.learn(batches=50)
        keepers[victim] = start("keeper", learner.url, f"shard-{victim}", CAPACITY, 32, 0.002)
        learner.await_restarts(round_ + 1)
        learner.learn(batches=50)
        learner.replay.check_valid()
    learner.await_shards(3)

    alive = inserted_at_the_end(keepers)
    learner.settle()
    stats = learner.replay.stats()
    assert (stats.restarted, stats.shards) == (6, 3)
    assert stats.inserted - stats.evicted == stats.size + stats.lost
    assert sum(stats.sizes.values()) == stats.size
    assert stats.inserted > alive
    assert stats.lost > 0
    assert stats.drawn == stats.applied + stats.stale + stats.priorities_lost


def test_every_transition_is_counted_and_every_draw_comes_home(
    start: Start, make: Callable[..., Learner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "CALL_SECONDS", 10 * HANG_SECONDS)  # no shard dies here
    learner = make()
    keepers = [start("keeper", learner.url, f"shard-{index}", 300, 32, 0.001) for index in range(2)]
    learner.await_shards(2)
    learner.learn(batches=200)
    inserted = inserted_at_the_end(keepers)
    learner.settle()

    stats = learner.replay.stats()
    assert stats.inserted == inserted
    assert (stats.size, stats.lost, stats.priorities_lost) == (600, 0, 0)
    assert stats.drawn == stats.applied + stats.stale
    assert stats.stale > 0, "small shards, fast writers"


def test_a_frozen_shard_holds_the_learner_up_once_and_comes_back(
    start: Start, make: Callable[..., Learner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "CALL_SECONDS", 1.0)
    learner = make()
    keepers = [start("keeper", learner.url, f"shard-{index}", CAPACITY, 32, 0.01) for index in range(2)]
    learner.await_shards(2)
    learner.learn(batches=20)

    keepers[0].freeze()
    # Learn until a call to the frozen shard times out. The other shard can deliver 500 batches before that.
    deadline = time.monotonic() + HANG_SECONDS
    while learner.replay.stats().shards == 2:
        assert time.monotonic() < deadline, f"no call timed out: {learner.replay.stats()}"
        learner.learn(batches=50)
    learner.await_shards(1)
    frozen = learner.replay.stats()
    assert frozen.lost > 0

    keepers[0].kill(signal.SIGCONT)
    learner.await_shards(2)
    learner.learn(batches=20)
    assert learner.replay.stats().restarted == 0
    inserted = inserted_at_the_end(keepers)
    learner.settle()
    learner.await_shards(2)  # until a shard that answered late reports again
    stats = learner.replay.stats()
    assert (stats.inserted, stats.lost) == (inserted, 0)


@pytest.mark.parametrize(
    ("pause", "work"), [(0.0, 0.02), (0.03, 0.0)], ids=["samplers are faster", "the learner is faster"]
)
def test_whoever_is_faster_waits(
    start: Start, make: Callable[..., Learner], pause: float, work: float
) -> None:
    block = 8
    learner = make(samples_per_insert=2.0)
    slack = learner.limiter.bound + 2.0 * 2 * block  # each shard may go beyond its limit by a block
    keepers = [start("keeper", learner.url, f"shard-{index}", CAPACITY, block, pause) for index in range(2)]
    learner.await_shards(2)
    errors = []
    for _ in range(10):
        learner.learn(batches=3, work=work)
        errors.append(learner.error())

    assert max(map(abs, errors)) <= slack, errors
    keepers[0].kill()  # while the other one, or the learner, waits
    learner.learn(batches=10, work=work)
    assert abs(learner.error()) <= slack


def test_a_restarted_learner_finds_its_shards_and_counts_nothing_twice(
    start: Start, make: Callable[..., Learner]
) -> None:
    learner = make()
    keepers = [start("keeper", learner.url, f"shard-{index}", CAPACITY, 32, 0.002) for index in range(2)]
    learner.await_shards(2)
    learner.learn(batches=50)
    state, port = json.loads(json.dumps(learner.replay.get_state())), learner.http.port
    learner.learn(batches=10)  # after the checkpoint
    learner.endpoint.stop()
    learner.http.stop()
    keepers[1].kill()

    again = make(port)
    again.replay.set_state(state)
    keepers[1] = start("keeper", again.url, "shard-1", CAPACITY, 32, 0.002)
    again.await_shards(2)
    again.learn(batches=50)
    alive = inserted_at_the_end(keepers)
    again.settle()

    stats = again.replay.stats()
    before = sum(shard["counts"][0] for shard in state["map"]["shards"] if shard["name"] == "shard-1")
    assert stats.inserted == alive + before
    assert stats.restarted == 1
    assert stats.drawn >= 100 * BATCH, "the ten after the checkpoint are drawn again"


def test_a_learner_that_keeps_the_shard_holds_its_samplers_back(
    start: Start, make: Callable[..., Learner]
) -> None:
    buffer = ReplayBuffer(CAPACITY, COLUMNS, kind="Prioritized", priority_exponent=0.6, seed=1)
    shard = ReplayShard(buffer)
    shard.set_limit(256)
    learner = make(kept=shard)
    inserter = start("inserter", learner.url, "sampler-0", 64)
    assert [inserter.hear() for _ in range(3)] == ["64", "128", "192"]
    deadline = time.monotonic() + HANG_SECONDS
    while shard.counts.inserted < 256:
        assert time.monotonic() < deadline, "the last block does not come"
        time.sleep(0.005)

    learner.replay.announce("learner", url=learner.endpoint.url, now=time.monotonic(), **shard.describe())
    learner.await_shards(1)
    learner.learn(batches=10)
    assert shard.counts.inserted == 256, "each block was sent twice, and the last one is held back"
    shard.set_limit(512)
    assert [inserter.hear() for _ in range(4)] == ["256", "320", "384", "448"]
    shard.check_valid()
    inserter.kill(signal.SIGTERM)
    assert inserter.wait() == 0
