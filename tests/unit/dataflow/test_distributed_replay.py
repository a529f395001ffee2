"""Many shards act as one memory: draws, importance weights, and priority updates."""

from __future__ import annotations

import pytest
import torch
from replay_world import World, draw, learn


@pytest.mark.parametrize("normalizer", ["Batch", "Buffer"])
def test_weights_are_those_of_one_buffer_whatever_the_priorities(normalizer: str) -> None:
    shards = [[0.3, 5.0, 2.0], [40.0] * 7, [0.02], [1.0, 0.0, 9.0]]
    everything = [priority for shard in shards for priority in shard]
    world = World(batch_size=14, importance_normalizer=normalizer)
    for number, priorities in enumerate(shards):
        world.start(f"shard-{number}", priorities)
    mass = sum(priority**0.6 for priority in everything)

    for _ in range(20):
        batch = draw(world)
        expected = {p: (len(everything) * p**0.6 / mass) ** -0.4 for p in batch.items["value"].tolist()}
        least = min(p for p in everything if p) if normalizer == "Buffer" else min(expected)
        assert batch.largest_weight == pytest.approx((len(everything) * least**0.6 / mass) ** -0.4)
        for value, weight in zip(batch.items["value"].tolist(), batch.weights.tolist(), strict=True):
            assert weight == pytest.approx(expected[value], rel=1e-5)
        learn(world, batch)


def test_alike_drawn_items_all_weigh_the_same() -> None:
    world = World(kind="Uniform")
    world.start("a", [10.0] * 10)
    world.start("b", [1.0] * 30)

    batch = draw(world)
    assert torch.equal(batch.weights, torch.ones(16))
    assert batch.largest_weight == 1.0
    assert (batch.items["value"] == 10).sum() == 4, "as many as its part of the items"


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_the_batch_of_all_learners_is_exact(size: int) -> None:
    world = World(batch_size=16)
    for number in range(4):
        world.start(f"shard-{number}", [float(number + 1)] * (number + 5))
    lengths = []
    for rank in range(size):
        replay = world.learner(seed=rank)
        replay.set_shards(world.replay.shards())
        replay.set_share(rank, size)
        lengths.append(len(draw(world, replay)))

    assert sum(lengths) == 16
    assert max(lengths) - min(lengths) <= 1
    with pytest.raises(ValueError, match="no learner 2 of 2"):
        world.replay.set_share(2, 2)


def test_the_share_may_change_while_batches_are_under_way() -> None:
    world = World(batch_size=16, prefetch=1)
    world.start("a", [1.0] * 40)
    world.replay.set_share(0, 2)
    lengths = [len(draw(world))]
    world.replay.set_share(0, 1)
    lengths += [len(draw(world)) for _ in range(3)]

    assert lengths == [8, 8, 16, 16]


@pytest.mark.parametrize(
    ("prefetch", "megabytes", "ahead", "messages"),
    [
        *((1, 0, 2, 2), (2, 0, 2, 1), (3, 0, 4, 2), (4, 0, 3, 1), (5, 0, 6, 2), (9, 0, 8, 2)),
        *((4, 16, 3, 1), (4, 20, 4, 2), (4, 30, 5, 5), (4, 300, 5, 5)),
    ],
)
def test_prefetched_batches_are_asked_for_while_one_is_used(
    prefetch: int, megabytes: int, ahead: int, messages: int
) -> None:
    """Small batches share a message. Large ones do not, so that a slow network delivers each message in time."""
    world = World(prefetch=prefetch)
    world.replay = world.learner(item_bytes=megabytes * 2**20 // 16)
    world.start("a", [1.0] * 40)
    draw(world)

    assert world.replay.stats().outstanding == ahead * 16
    assert world.line("a").services == ["stats"] + ["sample"] * messages


def test_batches_of_one_message_are_spread_alike() -> None:
    world = World(prefetch=4)
    world.start("a", [1.0] * 48)
    batches = [draw(world).places[0]]
    assert world.line("a").services == ["stats", "sample"]
    batches += [draw(world).places[0] for _ in range(2)]

    for batch in batches:
        assert (batch // 3).tolist() == list(range(16)), "one item of each sixteenth of the memory"
    assert len(torch.cat(batches).unique()) == 48


def test_ages_are_counted_in_insertions() -> None:
    world = World()
    world.start("a", [1.0] * 16)
    world.add("a", [0.0] * 10)
    batch = draw(world)

    assert set(batch.ages.tolist()) == set(range(11, 27))
    assert world.replay.stats().sample_age == pytest.approx(sum(range(11, 27)) / 16)


def test_priorities_go_back_with_the_next_request_and_count_for_it() -> None:
    world = World(prefetch=1)
    world.start("a", [1.0] * 20)
    world.start("b", [1.0] * 20)
    first = draw(world)
    world.replay.update(first, torch.full((16,), 3.0))
    draw(world)
    draw(world)

    for name in "ab":
        assert world.line(name).services == ["stats"] + ["sample"] * 4
    stats = world.replay.stats()
    assert (stats.drawn, stats.applied, stats.outstanding) == (64, 16, 48)
    drawn = set(zip(first.items["value"].tolist(), first.places[0].tolist(), strict=True))
    assert len(drawn) > 1
    mass = sum(world.shards[name].describe()["mass"] for name in "ab")
    assert 40 < mass <= 24 + 16 * 3**0.6


def test_priorities_go_back_at_once_if_nothing_is_asked_for() -> None:
    world = World(batch_size=16, minimum=16, samples_per_insert=1.0)
    world.start("a", [1.0] * 16)
    batches = [draw(world), draw(world)]
    assert world.replay.next_batch(0.0) is None, "the bound of the rate limiter is two batches"
    for batch in batches:
        learn(world, batch)
    assert world.replay.next_batch(0.0) is None

    assert world.line("a").services == ["stats", "sample", "update"]
    world.replay.next_batch(0.0)
    assert world.replay.stats().applied == 32


def test_priorities_do_not_wait_for_a_shard_from_which_nothing_is_drawn() -> None:
    world = World()
    world.start("a", [1.0] * 40)
    world.start("b", [40.0])
    late = draw(world)
    for _ in range(8):
        batch = draw(world)
        values = batch.items["value"]
        world.replay.update(batch, values.where(values < 40, 0.0))
    assert world.shards["b"].describe()["mass"] == 0
    world.replay.update(late, late.items["value"])
    for _ in range(4):
        learn(world, draw(world))

    assert world.shards["b"].describe()["mass"] == pytest.approx(40**0.6)


def test_bad_priorities_are_refused_and_may_be_given_again() -> None:
    world = World(batch_size=2)
    world.start("a", [1.0] * 4)
    batch = draw(world)
    for wrong in ([1.0], [1.0, -1.0], [1.0, float("nan")], [1.0, float("inf")]):
        with pytest.raises(ValueError, match="priorities"):
            world.replay.update(batch, torch.tensor(wrong))
    learn(world, batch)

    with pytest.raises(ValueError, match="not in use"):
        world.replay.update(batch, torch.ones(2))
    with pytest.raises(ValueError, match="not in use"):
        world.replay.discard(batch)
