"""Assembly of batches from the samples of shards."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
import torch
from rltraining_trainer.dataflow.replay.batch import ShardSample, split_into_batches
from rltraining_trainer.dataflow.replay.buffer import ReplayCounts
from rltraining_trainer.dataflow.replay.shard_map import Shard


def part(first: int, count: int) -> ShardSample:
    """Returns the draws `first`, `first` + 1, … of a round."""
    shard = Shard(f"from {first}", "", "", ReplayCounts(0, 0, 0, 0, 0), 0.0, ReplayCounts(0, 0, 0, 0, 0))
    numbers = torch.arange(first, first + count)
    return ShardSample(shard, 0.5, {"number": numbers}, numbers.double().expand(4, -1))


@pytest.mark.parametrize("sizes", [(12,), (7, 5), (1, 0, 10, 1), (2,), (13,)])
@pytest.mark.parametrize("batches", [1, 2, 3, 5])
def test_draws_are_dealt_in_turn(sizes: tuple[int, ...], batches: int) -> None:
    parts = [part(sum(sizes[:i]), size) for i, size in enumerate(sizes)]
    count = sum(sizes)
    where: Counter[tuple[int, int]] = Counter()
    for first in range(batches):
        hands = split_into_batches(parts, batches, first)

        numbers = [[int(n) for dealt in hand for n in dealt.items["number"]] for hand in hands]
        assert sorted(itertools.chain(*numbers)) == list(range(count)), "each draw is in one batch"
        assert all(right - left == batches for hand in numbers for left, right in itertools.pairwise(hand))
        assert max(map(len, numbers)) - min(map(len, numbers)) <= 1
        assert len(hands) == min(batches, count)
        for hand in hands:
            for dealt in hand:
                assert torch.equal(dealt.items["number"].double(), dealt.drawn[0])
                assert dealt.shard is next(
                    p.shard for p in parts if int(dealt.drawn[0, 0]) in p.items["number"]
                )
        if len(hands) == batches:
            where.update((n, place) for place, hand in enumerate(numbers) for n in hand)

    if count >= batches:
        assert set(where.values()) == {1}, "over all beginnings, each draw is once in each batch"
