"""`PrioritizedReplay`, the replay as a library: use in a program, and errors for bad input."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch
from rltraining_trainer.replay import PrioritizedReplay, ReplaySample
from through_a_file import through_a_file

from tests.unit.dataflow.naive_replay import NaiveReplay


def numbers(first: int, count: int) -> dict[str, Any]:
    return {"number": np.arange(first, first + count)}


def table(*priorities: float, capacity: int = 8, **settings: Any) -> PrioritizedReplay:
    """Returns a table of the items 0, 1, 2, ... with these priorities."""
    replay = PrioritizedReplay(capacity, **{"priority_exponent": 1.0} | settings)
    if priorities:
        replay.extend(numbers(0, len(priorities)), priorities)
    return replay


def shares(replay: PrioritizedReplay, size: int = 4000) -> dict[int, float]:
    """Returns each item's share of a large sample."""
    found, counts = np.unique(replay.sample(size)["number"], return_counts=True)
    return dict(zip(found.tolist(), (counts / size).tolist(), strict=True))


def test_items_are_sampled_by_priority_with_weights_that_undo_it() -> None:
    replay = table(1.0, 0.0, 3.0, importance_exponent=1.0)
    assert shares(replay) == pytest.approx({0: 0.25, 2: 0.75}, abs=0.001)
    sample = replay.sample(8)
    weights = dict(zip(sample["number"].tolist(), sample.weights.tolist(), strict=True))
    assert weights == pytest.approx({0: 1.0, 2: 1 / 3})
    assert replay.sample(8, importance_exponent=0.0).weights.tolist() == [1.0] * 8


def test_priorities_change_and_updates_of_evicted_items_count_as_stale() -> None:
    replay = table(1.0, 1.0, capacity=2)
    sample = replay.sample(2)
    replay.update_priorities(sample, [0.0, 5.0])
    assert shares(replay) == {1: 1.0}
    replay.add({"number": 2})  # at the largest priority so far, in place of item 0
    assert shares(replay) == pytest.approx({1: 0.5, 2: 0.5}, abs=0.001)
    replay.update_priorities(sample, [7.0, 1.0])
    assert shares(replay) == pytest.approx({1: 1 / 6, 2: 5 / 6}, abs=0.001)
    stats = replay.stats()
    assert (stats.size, stats.inserted, stats.evicted, stats.updated, stats.stale) == (2, 3, 1, 3, 1)
    assert stats.samples_per_insert == stats.sampled / 3


def test_samples_match_a_naive_table_whatever_is_inserted_and_updated() -> None:
    random = np.random.default_rng(1)
    replay, naive, inserted = table(capacity=30), NaiveReplay(30, 1.0), 0
    for count in (1, 20, 45, 7, 0, 3):
        priorities = random.random(count)
        replay.extend(numbers(inserted, count), priorities)
        naive.add({"number": torch.arange(inserted, inserted + count)}, torch.from_numpy(priorities))
        inserted += count
        sample, changed = replay.sample(6), random.random(6)
        replay.update_priorities(sample, changed)
        naive.update(torch.from_numpy(sample.keys), torch.from_numpy(changed))
        weights = naive.weights()
        likely = {key: weight / sum(weights.values()) for key, weight in weights.items()}
        assert shares(replay, 20_000) == pytest.approx(likely, abs=0.001)


@pytest.mark.parametrize(
    ("item", "kind", "types"),
    [
        (
            {"a": np.float32([1, 2]), "b": 1, "c": 0.5, "d": True},
            np.ndarray,
            ["float32", "int64", "float32", "bool"],
        ),
        (
            {"a": torch.tensor([1.0, 2.0]), "b": torch.tensor(3)},
            torch.Tensor,
            ["torch.float32", "torch.int64"],
        ),
        ({"a": np.uint8([[1]]), "b": np.float64(2)}, np.ndarray, ["uint8", "float32"]),
    ],
)
def test_samples_are_of_the_kind_and_types_of_the_first_item(
    item: dict, kind: type, types: list[str]
) -> None:
    replay = PrioritizedReplay(4)
    replay.add(item)
    replay.add(item, priority=2.0)
    sample = replay.sample(3)
    assert all(isinstance(part, kind) for part in (*sample.items.values(), sample.weights, sample.keys))
    assert [str(rows.dtype) for rows in sample.items.values()] == types
    for name, value in item.items():
        assert np.array_equal(sample[name], np.stack([np.asarray(value)] * 3)), name
    replay.update_priorities(sample, sample.weights)


def test_the_rate_limiter_keeps_samples_in_proportion_to_insertions() -> None:
    replay = table(capacity=10_000, min_size=100, samples_per_insert=4.0)
    for step in range(1000):
        assert not replay.can_sample(32)
        replay.extend(numbers(step, 1))
        while replay.can_sample(32):
            replay.sample(32)
        assert (replay.stats().sampled > 0) is (step + 1 >= 100)
    assert replay.stats().sampled == pytest.approx(4.0 * 900, abs=3 * 32)
    assert not PrioritizedReplay(4).can_sample(1)


def test_a_table_continues_exactly_from_its_state_dict() -> None:
    def use(replay: PrioritizedReplay) -> list[list[int]]:
        replay.extend(numbers(50, 3))
        samples = [replay.sample(5) for _ in range(3)]
        for sample in samples:
            replay.update_priorities(sample, sample.weights * 2)
        return [sample.keys.tolist() for sample in samples]

    replay = table(*range(1, 12))
    use(replay)
    state = through_a_file(replay.state_dict())
    fresh = table(9.0, seed=5)
    fresh.load_state_dict(state)
    assert fresh.stats() == replay.stats()
    assert use(fresh) == use(replay)
    empty = PrioritizedReplay(8)
    empty.load_state_dict(PrioritizedReplay(8).state_dict())
    assert len(empty) == 0
    with pytest.raises(ValueError, match="does not fit"):
        table(capacity=9).load_state_dict(replay.state_dict())


def test_stacks_of_frames_are_stored_frame_by_frame() -> None:
    frames = np.random.default_rng(0).integers(0, 255, (12, 5, 5), np.uint8)
    stacks = np.stack([frames[i : i + 4] for i in range(9)])
    replay = PrioritizedReplay(8, frame_stack=4)
    replay.extend({"observation": stacks[:8], "next_observation": stacks[1:]})
    sample = replay.sample(16)
    assert np.array_equal(sample["observation"], stacks[:8][sample.keys])
    assert np.array_equal(sample["next_observation"], stacks[1:][sample.keys])
    assert replay._buffer._stores["stacks"].count == 12


def test_one_thread_inserts_while_another_samples() -> None:
    replay = table(1.0, capacity=64)

    def insert() -> None:
        for step in range(1, 1001):
            replay.extend(numbers(step, 1))

    inserting = threading.Thread(target=insert)
    inserting.start()
    while inserting.is_alive():
        sample = replay.sample(16)
        assert np.array_equal(sample["number"], sample.keys)
        replay.update_priorities(sample, np.ones(16))
    inserting.join()
    stats = replay.stats()
    assert stats.sampled == stats.updated + stats.stale
    assert (stats.inserted, stats.evicted) == (1001, 1001 - 64)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"capacity": 0}, "capacity must be at least 1, not 0"),
        ({"min_size": 0}, "min_size must be at least 1, not 0"),
        ({"priority_exponent": 2}, r"priority_exponent must be within \[0, 1\], not 2"),
        ({"importance_exponent": -1}, r"importance_exponent must be within \[0, 1\], not -1"),
        ({"samples_per_insert": 0}, "samples_per_insert must be positive, not 0"),
    ],
)
def test_arguments_out_of_range_are_refused_by_name(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PrioritizedReplay(**{"capacity": 4} | arguments)


@pytest.mark.parametrize(
    ("items", "priorities", "message"),
    [
        ({"other": [1]}, None, r"the replay holds \['number'\], not \['other'\]"),
        ({"number": [0.5]}, None, "number holds torch.int64: it cannot hold torch.float32"),
        (
            {"number": [[1, 2]]},
            None,
            r"number must be torch.int64 of shape \(1,\), not torch.int64 of shape \(1, 2\)",
        ),
        ({"number": ["one"]}, None, "number must be numbers, not <U3"),
        ({"number": [1, 2]}, [1.0], "each item needs one priority: got 1 priorities for 2 items"),
        ({"number": [1]}, [-1.0], "priorities must be finite and at least 0"),
        ({"number": [1]}, [float("nan")], "priorities must be finite and at least 0"),
    ],
)
def test_items_that_do_not_fit_are_refused_and_change_nothing(
    items: dict, priorities: Any, message: str
) -> None:
    replay = table(1.0, 2.0)
    before = replay.stats()
    with pytest.raises(ValueError, match=message):
        replay.extend(items, priorities)
    assert replay.stats() == before


def test_invalid_samples_and_updates_are_refused() -> None:
    empty, replay = PrioritizedReplay(4), table(1.0)
    with pytest.raises(ValueError, match="nothing can be sampled: the table is empty"):
        empty.sample(1)
    for items in ({}, {"number": 3}):
        with pytest.raises(ValueError, match=r"at least one column|one row per item"):
            empty.extend(items)
    sample = replay.sample(2)
    with pytest.raises(ValueError, match=r"a sample of 2 needs as many priorities, not \[1\]"):
        replay.update_priorities(sample, [1.0])
    with pytest.raises(ValueError, match="it is empty"):
        empty.update_priorities(ReplaySample({}, sample.weights, sample.keys), [1.0, 1.0])
