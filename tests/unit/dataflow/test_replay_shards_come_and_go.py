"""Shards and learners die, freeze and return: no process blocks forever, and nothing is counted twice."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from replay_world import World, draw, learn, settle
from rltraining_trainer.dataflow.replay import DistributedReplay, ReplayBatch
from rltraining_trainer.dataflow.replay.distributed import SILENT_SECONDS
from rltraining_trainer.dataflow.replay.requests import CALL_SECONDS


def world_of_two(**settings: Any) -> World:
    """Returns a world with two equal shards, a and b."""
    world = World(**settings)
    for name in "ab":
        world.start(name, [1.0] * 20)
    return world


def test_nothing_is_drawn_before_the_minimum_and_after_a_loss_before_it_is_there_again() -> None:
    world = World(minimum=30)
    world.start("a", [1.0] * 20)
    assert not world.replay.ready()
    assert world.replay.next_batch(0.0) is None

    world.start("b", [1.0] * 10)
    assert world.replay.ready()
    assert len(draw(world)) == 16
    world.start("b")
    assert world.replay.ready(), "enough for a batch is left"
    world.start("a")
    assert not world.replay.ready()
    world.add("b", [1.0] * 29)
    assert not world.replay.ready()
    world.add("a", [1.0])
    assert world.replay.ready()


def test_an_announcement_wakes_who_waits_for_a_batch() -> None:
    world = World()
    world.replay = DistributedReplay(world.dial, world.settings, world.batch_size, seed=0)
    waiting = threading.Thread(target=lambda: batches.append(world.replay.next_batch(60.0)))
    batches: list[ReplayBatch | None] = []
    world.clock.now = time.monotonic()
    waiting.start()
    world.start("a", [1.0] * 20)
    waiting.join(30)

    assert batches
    assert batches[0] is not None


def test_a_shard_lost_in_mid_sample_gives_a_smaller_batch() -> None:
    world = world_of_two(prefetch=1)
    learn(world, draw(world))
    world.line("a").frozen = True
    learn(world, draw(world))  # requests from the frozen shard
    world.line("a").die()

    for _ in range(2):  # also a batch that was requested before the loss was detected
        smaller = draw(world)
        assert [shard.name for shard, _ in smaller.shards] == ["b"]
        assert len(smaller) == 8
        learn(world, smaller)
    assert len(draw(world)) == 16, "the other one alone"
    stats = world.replay.stats()
    assert (stats.shards, stats.size, stats.lost) == (1, 20, 20)
    assert stats.priorities_lost > 0


def test_a_shard_that_never_answered_is_not_drawn_from() -> None:
    world = world_of_two()
    world.line("b").frozen = True

    assert [shard.name for shard, _ in draw(world).shards] == ["a"]
    assert world.clock.now == 0, "the update did not wait for b"
    world.line("b").thaw()
    draw(world)
    assert [shard.name for shard, _ in [draw(world) for _ in range(3)][-1].shards] == ["a", "b"]


def test_a_frozen_shard_holds_the_learner_up_once() -> None:
    world = world_of_two(prefetch=2)
    learn(world, draw(world))
    world.line("a").frozen = True
    for _ in range(8):
        world.announce("b")
        batch = world.replay.next_batch(10.0)
        assert batch is not None
        learn(world, batch)

    assert world.clock.now == pytest.approx(CALL_SECONDS)
    assert world.line("a").services.count("sample") == 2, "once it was dropped nothing is asked of it"
    world.line("a").thaw()
    world.announce("a")
    for _ in range(5):
        learn(world, draw(world))
    assert world.replay.stats().shards == 2
    assert world.clock.now == pytest.approx(CALL_SECONDS)


def test_answers_that_come_slowly_one_after_the_other_are_in_time(caplog: pytest.LogCaptureFixture) -> None:
    world = World(prefetch=3)
    world.start("a", [1.0] * 20)
    draw(world)
    world.line("a").frozen = True
    for _ in range(3):  # these request more, on a slow network
        draw(world)
    for _ in range(3):
        assert world.replay.next_batch(0.9 * CALL_SECONDS) is None
        world.line("a").answer_one()
        draw(world)
        draw(world)  # the other batch of that message

    assert world.clock.now > 2 * CALL_SECONDS
    assert not caplog.records


def test_next_batch_returns_in_time_and_goes_on_waiting_later() -> None:
    world = World(prefetch=1)
    world.start("a", [1.0] * 20)
    draw(world)
    draw(world)
    world.line("a").frozen = True
    draw(world)
    began = world.clock.now
    assert world.replay.next_batch(0.5) is None
    assert world.clock.now - began == pytest.approx(0.5)
    world.line("a").thaw()

    assert len(draw(world)) == 16
    settle(world)
    assert world.replay.stats().priorities_lost == 0


def test_a_shard_that_answers_requests_is_not_silent() -> None:
    world = world_of_two()
    while world.clock.now < 2 * SILENT_SECONDS:
        world.clock.now += 0.5
        world.announce("b")
        learn(world, draw(world))
    assert world.replay.stats().sizes == {"a": 20, "b": 20}


def test_a_silent_shard_leaves_until_it_announces_itself() -> None:
    world = not_sampled_yet()
    wait(world, SILENT_SECONDS * 0.9, "b")
    assert world.replay.stats().sizes == {"a": 20, "b": 20}
    wait(world, SILENT_SECONDS * 0.2, "b")
    assert world.replay.stats().sizes == {"b": 20}
    assert world.replay.stats().lost == 20
    world.announce("a")
    assert world.replay.stats().sizes == {"a": 20, "b": 20}
    assert world.replay.stats().lost == 0


def test_a_pause_of_the_learner_is_not_silence_of_the_shards() -> None:
    world = not_sampled_yet()
    for _ in range(3):  # updates that delay the answers to the reports
        world.clock.now += 2 * SILENT_SECONDS
        wait(world, 0.5)
    assert world.replay.stats().sizes == {"a": 20, "b": 20}
    wait(world, SILENT_SECONDS + 0.5)
    assert world.replay.stats().sizes == {}


def not_sampled_yet() -> World:
    """Returns two shards of 20 items, fewer than the minimum.

    The learner sends no request, so no response can serve as a sign of life.
    """
    world = World(minimum=1000)
    for name in "ab":
        world.start(name, [1.0] * 20)
    wait(world, 0.5, *"ab")
    return world


def wait(world: World, seconds: float, *announced: str) -> None:
    """Lets the learner wait for a batch while these shards announce themselves."""
    for _ in range(round(seconds / 0.5)):
        world.clock.now += 0.5
        for name in announced:
            world.announce(name)
        assert world.replay.next_batch(0.0) is None


def test_a_restarted_shard_starts_empty_and_is_counted() -> None:
    world = World(capacity=16)
    world.start("a", [1.0] * 20)
    old = world.shards["a"]
    learn(world, draw(world))
    world.line("a").die()
    world.start("a", [2.0] * 5)
    world.replay.announce("a", url="gone", now=0.0, **old.describe())  # sent before the death, received late

    stats = world.replay.stats()
    assert (stats.restarted, stats.shards, stats.size) == (1, 1, 5)
    assert (stats.inserted, stats.evicted, stats.lost) == (25, 4, 16)
    world.replay.check_valid()


def test_a_shard_restored_from_its_checkpoint_is_not_counted_twice() -> None:
    world = World(capacity=16)
    world.start("a", [1.0] * 20)
    state = world.shards["a"].get_state()
    world.add("a", [1.0] * 3)
    world.start("a", state=state)
    world.add("a", [1.0] * 2)

    stats = world.replay.stats()
    assert (stats.inserted, stats.evicted, stats.size, stats.lost) == (25, 9, 16, 0)
    world.replay.check_valid()
    # The state was saved after the last announcement, so unannounced insertions are counted now.
    weights = torch.ones(4, dtype=torch.float64)
    world.shards["a"].add({"value": weights}, weights)
    world.start("a", state=world.shards["a"].get_state())
    assert world.replay.stats().inserted == 29
    world.replay.check_valid()


def test_a_shard_with_a_new_address_is_dialled_again() -> None:
    world = World()
    world.start("a", [1.0] * 20)
    draw(world)
    line = world.line("a")
    line.die()
    world.lines["elsewhere"] = type(line)(world.shards["a"], world.clock)
    world.replay.announce("a", url="elsewhere", now=0.0, **world.shards["a"].describe())

    assert len(draw(world)) == 16
    assert world.replay.stats().restarted == 0
    assert "sample" in world.lines["elsewhere"].services


def test_an_address_that_cannot_be_dialled_is_left_out() -> None:
    world = World()
    world.start("a", [1.0] * 20)
    del world.lines[world.url("a")]

    assert world.replay.next_batch(0.0) is None
    assert world.replay.stats().shards == 0


def test_a_restarted_learner_finds_its_shards_and_counts_nothing_twice() -> None:
    world = World(capacity=16)
    world.start("a", [1.0] * 20)
    world.start("b", [1.0] * 5)
    for _ in range(3):
        learn(world, draw(world))
    state = json.loads(json.dumps(world.replay.get_state()))
    before = world.replay.stats()
    world.add("a", [1.0] * 3)

    world.replay = world.learner()
    world.replay.set_state(state)
    away = world.replay.stats()
    assert (away.inserted, away.size, away.lost) == (25, 0, 21)
    assert (away.drawn, away.applied, away.priorities_lost) == (
        before.drawn,
        before.applied,
        before.outstanding,
    )
    world.replay.check_valid()
    world.announce("a")
    world.start("b", [1.0] * 2)

    stats = world.replay.stats()
    assert (stats.inserted, stats.evicted, stats.size, stats.lost) == (30, 7, 18, 5)
    assert stats.restarted == 1
    learn(world, draw(world))
    with pytest.raises(ValueError, match="in use"):
        world.replay.set_state(state)


def test_other_learners_follow_the_first_ones_map() -> None:
    world = world_of_two(prefetch=1)
    other = world.learner(seed=1)
    other.set_share(1, 2)
    other.set_shards(json.loads(json.dumps(world.replay.shards())))
    learn(world, draw(world, other), other)
    assert other.stats().sizes == {"a": 20, "b": 20}

    world.line("a").cut = True
    for _ in range(3):
        learn(world, draw(world, other), other)
    assert other.stats().sizes == {"b": 20}
    other.set_shards(world.replay.shards())
    assert other.stats().sizes == {"b": 20}, "it knows better, until there is news"
    world.line("a").cut = False
    world.announce("a")
    other.set_shards(world.replay.shards())
    assert other.stats().sizes == {"a": 20, "b": 20}

    world.start("a", [1.0] * 3)
    other.set_shards([entry for entry in world.replay.shards() if entry["name"] == "a"])
    assert other.stats().sizes == {"a": 3}
    other.check_valid()


@pytest.fixture
def often_switched() -> Iterator[None]:
    """Switches threads so often that each thread sees the other in the middle of an operation."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("often_switched")
def test_figures_are_of_one_moment() -> None:
    world = World()
    stop = threading.Event()
    wrong: list[Any] = []

    def watch() -> None:
        while not stop.is_set():
            stats = world.replay.stats()
            if stats.inserted != stats.evicted + stats.size + stats.lost:
                wrong.append(stats)
            if stats.drawn != stats.applied + stats.stale + stats.priorities_lost + stats.outstanding:
                wrong.append(stats)

    watcher = threading.Thread(target=watch)
    watcher.start()
    world.start("a", [1.0] * 20)
    for round_ in range(100):
        learn(world, draw(world))
        world.add("a", [1.0] * 5)
        if round_ % 20 == 0:
            world.start("a", [1.0] * 20)
    stop.set()
    watcher.join()

    assert not wrong
    assert world.replay.stats().replay_ratio > 1
