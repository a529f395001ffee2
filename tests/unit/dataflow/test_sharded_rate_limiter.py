"""Learner and samplers block for each other as required, and never all at the same time."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest
from replay_world import World
from rltraining_trainer.dataflow.replay import DistributedReplay
from rltraining_trainer.dataflow.replay.distributed import SILENT_SECONDS
from rltraining_trainer.dataflow.replay.rate_limiter import RateLimiter

BATCH = 16
MINIMUM = 100


def paced(ratio: float, prefetch: int = 2) -> World:
    return World(batch_size=BATCH, minimum=MINIMUM, samples_per_insert=ratio, prefetch=prefetch, capacity=500)


def error(world: World, learners: Sequence[DistributedReplay] = ()) -> float:
    """Returns the draws made minus the draws due, and checks the bound."""
    stats = world.replay.stats()
    drawn = stats.drawn + sum(learner.stats().drawn for learner in learners)
    limiter = RateLimiter(world.settings.samples_per_insert, 0.1, MINIMUM, BATCH)
    if stats.inserted >= MINIMUM:
        assert abs(limiter.error(stats.inserted, drawn)) <= limiter.bound + 1e-6, "one side ran away"
    return limiter.error(stats.inserted, drawn)


def write(world: World, name: str, wish: int) -> int:
    """Adds transitions as a sampler that has `wish` of them. Returns the number added before it must wait."""
    world.announce(name)
    limit = world.replay.insert_limit(name)
    assert limit is not None
    added = max(0, min(wish, limit - world.shards[name].counts.inserted))
    world.add(name, [1.0] * added)
    return added


def learn(world: World, replay: DistributedReplay | None = None) -> bool:
    replay = replay or world.replay
    batch = replay.next_batch(0.0)
    replay.check_valid()
    if batch is not None:
        replay.update(batch, batch.items["value"])
    return batch is not None


def run(world: World, names: Sequence[str], rounds: int, wish: int, updates: int) -> tuple[int, int]:
    """Runs rounds in which every sampler has `wish` transitions and the learner time for `updates`.

    Returns the numbers of added transitions and of updates.
    """
    added = learned = 0
    for _ in range(rounds):
        before = (added, learned)
        for name in names:
            added += write(world, name, wish)
            error(world)
        for _ in range(updates):
            learned += learn(world)
            error(world)
        assert (added, learned) != before, "all members wait for each other"
    return added, learned


@pytest.mark.parametrize("prefetch", [1, 8])
@pytest.mark.parametrize("ratio", [0.25, 1.0, 8.0])
@pytest.mark.parametrize(("wish", "updates"), [(50, 1), (1, 10)])
def test_whoever_is_faster_waits_for_the_other(ratio: float, prefetch: int, wish: int, updates: int) -> None:
    world = paced(ratio, prefetch)
    world.start("a")
    world.start("b")
    added, learned = run(world, "ab", 60, wish, updates)

    assert added > MINIMUM
    assert learned * BATCH == pytest.approx(
        (added - MINIMUM) * ratio, abs=BATCH * (prefetch + 3) + 0.1 * ratio * MINIMUM
    )


def test_without_a_ratio_nobody_waits() -> None:
    world = World(batch_size=BATCH, minimum=MINIMUM)
    world.start("a", [1.0] * MINIMUM)

    assert world.replay.insert_limit("a") is None
    assert all(learn(world) for _ in range(100))


def test_what_may_be_inserted_is_divided_over_the_shards() -> None:
    world = paced(1.0)  # bound: 32
    world.start("a")
    assert world.replay.insert_limit("a") == 132
    world.start("b")
    assert world.replay.insert_limit("b") == 0, "the first one was promised everything"
    world.add("a", [1.0] * 2)
    assert world.replay.insert_limit("a") == 2 + 65, "until it asks again"
    assert world.replay.insert_limit("b") == 0, "the first one may not have received the message yet"
    world.add("a", [1.0])
    assert world.replay.insert_limit("a") == 3 + 64
    assert world.replay.insert_limit("b") == 64
    world.add("a", [1.0] * 64)
    assert world.replay.insert_limit("a") == 67 + 1, "the rest is promised to b"
    world.add("b", [1.0] * 40)
    assert world.replay.insert_limit("b") == 40 + 12
    world.add("a", [1.0])
    assert world.replay.insert_limit("a") == 68, "b may still insert 64"
    assert world.replay.insert_limit("b") == 40 + 1, "it inserts nothing, although it may"
    assert world.replay.insert_limit("a") == 68 + 12, "b may still insert 52"
    world.add("a", [1.0])
    assert world.replay.insert_limit("b") == 40 + 1
    assert world.replay.insert_limit("a") == 69 + 23, "everything that is left"
    assert world.replay.insert_limit("unknown") == 0


def test_a_grant_that_is_taken_back_goes_to_others_when_the_shard_has_heard_of_it() -> None:
    world = paced(1.0)  # bound: 32
    world.start("a")
    assert world.replay.insert_limit("a") == 132
    world.start("b")
    assert world.replay.insert_limit("b") == 0
    assert world.replay.insert_limit("a") == 1, "it has inserted nothing, although it may"
    assert world.replay.insert_limit("b") == 0, "a may insert 132 until a receives the message"
    world.add("a", [1.0] * 132)
    assert world.replay.insert_limit("a") == 132
    assert world.replay.insert_limit("b") == 0, "a has inserted what both may"


def test_what_the_only_shard_may_insert_is_not_granted_to_a_new_shard_too() -> None:
    world = paced(1.0)  # bound: 32
    world.start("a")
    assert [world.replay.insert_limit("a") for _ in range(2)] == [132, 132]
    world.start("b")
    assert world.replay.insert_limit("b") == 0, "a was slow, but it still may insert 132"


def test_the_only_shard_is_promised_everything_however_often_it_asks() -> None:
    """With placement Learner, the first learner requests its limit far more often than samplers insert."""
    world = paced(1.0)
    world.start("a")

    assert [world.replay.insert_limit("a") for _ in range(3)] == [132, 132, 132]


def test_many_shards_share_a_room_that_is_smaller_than_they_are_many() -> None:
    world = paced(1.0)
    names = [f"shard-{number}" for number in range(50)]
    for name in names:
        world.start(name)
    added, _ = run(world, names, 20, wish=3, updates=2)

    assert added > MINIMUM


def test_a_shard_that_dies_takes_no_room_with_it() -> None:
    world = paced(1.0)
    world.start("a")
    world.start("b")
    run(world, "ab", 50, wish=5, updates=1)
    world.line("a").frozen = True
    for _ in range(20):  # b continues while a's part of the room is not needed
        world.clock.now += SILENT_SECONDS / 10
        write(world, "b", 100)
        learn(world)
        error(world)
    assert world.replay.stats().sizes.keys() == {"b"}
    run(world, "b", 50, wish=5, updates=1)
    world.start("a")
    run(world, "ab", 50, wish=5, updates=1)


def test_a_learner_that_begins_anew_owes_no_draws_for_what_was_inserted_before_it() -> None:
    world = paced(1.0)  # bound: 32
    world.start("a")
    world.start("b")
    run(world, "ab", 100, wish=10, updates=2)
    before = world.replay.stats().inserted
    assert before > 5 * MINIMUM
    world.replay.close()
    world.replay = world.learner()
    for name in "ab":
        world.announce(name, served_before=True)

    assert world.replay.ready()
    learned, added = 0, sum(write(world, name, 10) for name in "ab")
    assert added == 20, "samplers continue immediately"
    for _ in range(200):
        added += sum(write(world, name, 3) for name in "ab")
        learned += learn(world)
        assert abs(learned * BATCH - added) <= 32 + 3 * BATCH, "what is asked for ahead is drawn, too"
    assert learned > 50
    restart(world, world.replay.get_state())
    assert sum(write(world, name, 3) for name in "ab") > 0, "its checkpoint knows what it does not owe"


@pytest.mark.parametrize(
    ("learner", "first"),
    [
        ("stays", 0),
        ("is restored", 0),
        ("is restored", 20),
        ("is restored from long ago", 0),
        ("is restored from long ago", 20),
    ],
)
def test_no_draws_are_due_for_what_fills_the_memory_again(learner: str, first: int) -> None:
    """The only shard is replaced, and has ``first`` transitions when it is seen first. The learner may be replaced too,
    at the beginning of the refill and in the middle of it."""
    world = paced(1.0)  # bound: 32
    world.start("a")
    run(world, "a", 20, wish=20, updates=1)
    drain(world)
    checkpoint = world.replay.get_state()
    world.start("a", [1.0] * first)
    for inserted in (MINIMUM // 2, MINIMUM):
        if learner != "stays":
            restart(world, checkpoint)
            world.announce("a")
        while world.shards["a"].counts.inserted < inserted:
            assert not learn(world)
            assert write(world, "a", 5) == 5
        if learner == "is restored":
            checkpoint = world.replay.get_state()

    assert abs(drawn_beyond_added(world)) < MINIMUM / 2


@pytest.mark.parametrize("times", [1, 5])
def test_no_draws_are_due_for_fills_that_were_interrupted_before_the_first_draw(times: int) -> None:
    world = paced(1.0)  # bound: 32
    for _ in range(times):
        world.start("a")
        for _ in range(18):
            assert write(world, "a", 5) == 5
            assert not learn(world)
    world.start("a")
    while not world.replay.ready():
        write(world, "a", 5)

    assert abs(drawn_beyond_added(world)) < MINIMUM / 2


def test_draws_are_due_for_all_later_insertions_when_an_empty_shard_is_seen_first() -> None:
    """The learner is restored from a checkpoint before them, and sees the shards one after the other."""
    world = paced(1.0)  # bound: 32
    for name in "ab":
        world.start(name)
    run(world, "ab", 20, wish=20, updates=1)
    drain(world)
    checkpoint = world.replay.get_state()
    before = world.shards["a"].counts.inserted
    run(world, "ab", 60, wish=10, updates=2)
    added = world.shards["a"].counts.inserted - before
    assert added > 3 * MINIMUM
    world.start("b")
    restart(world, checkpoint)
    world.announce("b")
    assert not world.replay.ready()
    world.announce("a")

    assert added - MINIMUM - 32 <= drain(world) <= added + 2 * BATCH


def drain(world: World) -> int:
    """Draws all that may be drawn. Returns its number."""
    drawn = 0
    while learn(world):
        drawn += BATCH
    return drawn


def drawn_beyond_added(world: World) -> int:
    """Adds some transitions one at a time, and draws as much as possible meanwhile. Returns the difference."""
    drawn = added = 0
    for _ in range(100):
        added += write(world, "a", 1)
        drawn += drain(world)
    assert added >= 90
    return drawn - added


def restart(world: World, checkpoint: dict[str, Any]) -> None:
    """Replaces the learner, which continues from a checkpoint."""
    again = world.learner()
    again.set_state(checkpoint)
    world.replay.close()
    world.replay = again


def test_several_learners_draw_one_batch_together() -> None:
    world = paced(1.0)
    world.start("a")
    world.start("b")
    others = [world.learner(seed=rank) for rank in (1, 2)]
    for rank, replay in enumerate([world.replay, *others]):
        replay.set_share(rank, 3)
    rounds = 0
    for _ in range(100):
        for name in "ab":
            write(world, name, 20)
        if not learn(world):
            continue
        rounds += 1
        for replay in others:
            replay.set_shards(world.replay.shards())
            assert learn(world, replay)
        error(world, others)

    assert rounds > 60


@pytest.mark.parametrize(("pause", "work"), [(0.0, 0.001), (0.001, 0.0)])
def test_threads_that_wait_for_each_other_all_go_on(pause: float, work: float) -> None:
    """One side is slow: the samplers by `pause` seconds, or the learner by `work` seconds."""
    world = paced(1.0)
    replay = world.replay = DistributedReplay(world.dial, world.settings, BATCH, seed=0)
    done = threading.Event()

    def sample(name: str) -> None:
        while not done.wait(pause):
            world.clock.now = time.monotonic()
            if not write(world, name, 10):
                done.wait(0.0005)

    world.clock.now = time.monotonic()
    for name in "ab":
        world.start(name)
    samplers = [threading.Thread(target=sample, args=(name,)) for name in "ab"]
    for sampler in samplers:
        sampler.start()
    try:
        for _ in range(150):
            batch = replay.next_batch(60.0)
            assert batch is not None, "the learner's wait did not end"
            replay.update(batch, batch.items["value"])
            error(world)
            done.wait(work)
    finally:
        done.set()
        for sampler in samplers:
            sampler.join()
    replay.check_valid()


def test_shards_that_nobody_writes_to_keep_none_from_filling_the_memory() -> None:
    """This happens with more replay pods than samplers."""
    world = paced(0.5)
    names = [f"idle-{number}" for number in range(10)]

    def fill() -> None:
        for name in ("a", *names):
            world.start(name)
        for _ in range(150):
            for name in names:
                write(world, name, 0)
            write(world, "a", 20)
        assert world.replay.ready()

    fill()
    run(world, "a", 100, wish=20, updates=2)
    fill()


@pytest.mark.parametrize("ratio", [0.5, 500.0])
def test_shards_that_nobody_writes_to_hold_nobody_up_later_either(ratio: float) -> None:
    world = paced(ratio)
    idle = [f"idle-{number}" for number in range(5)]
    for name in ("a", *idle):
        world.start(name)
    run(world, ["a"], 20, wish=20, updates=5)
    added = 0
    for _ in range(12):
        for name in idle:
            write(world, name, 0)
        added += write(world, "a", 1)
        for _ in range(40):
            learn(world)
            error(world)

    assert added > 10
    added = 0
    for _ in range(40):
        added += sum(write(world, name, 10) for name in idle)
        write(world, "a", 1)
        learn(world)
    assert added > 0, "an idle sampler may begin"
    run(world, ["a", *idle], 5, wish=3, updates=100)
