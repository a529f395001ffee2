"""A batch made of what several shards gave."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rltraining_trainer.dataflow.replay.shard_map import Shard
from rltraining_trainer.dataflow.replay.weights import importance_weights


class ShardSample(NamedTuple):
    """What one shard gave."""

    shard: Shard
    share: float
    """Probability that a draw was to come from this shard, when the batch was split."""
    items: dict[str, Tensor]
    """Each [k, ...]."""
    drawn: Tensor
    """float64 [4, k], k > 0: see rltraining_trainer.dataflow.replay.shard.SAMPLE_FIELDS."""


class BatchShards(NamedTuple):
    """What one batch is made of."""

    number: int
    """Which of its learner's."""
    parts: Sequence[ShardSample]
    """At least one."""
    total: int
    """Transitions in all shards."""
    least: float
    """Probability of the least likely item in the memory; infinity: the batch's own largest weight counts."""

    @property
    def size(self) -> int:
        return sum(part.drawn.shape[1] for part in self.parts)


@dataclass(frozen=True, eq=False)
class ReplayBatch:
    """B transitions from all shards."""

    number: int
    """Which of its learner's."""
    items: dict[str, Tensor]
    """Each [B, ...]."""
    weights: Tensor
    """float32 [B]: importance weights (N·P)^-β, not normalised."""
    largest_weight: float
    """What weights may be divided by, once for all learners: the largest of them; or, with the normalizer Buffer, the
    largest that any item in the memory would have had."""
    ages: Tensor
    """int64 [B]: insertions into its shard since each was added."""
    places: Tensor
    """float64 [2, B]: slots and versions, in their shards."""
    shards: tuple[tuple[Shard, int], ...]
    """Where items came from, in their order, and how many."""

    def __len__(self) -> int:
        return len(self.weights)

    def __getitem__(self, column: str) -> Tensor:
        return self.items[column]

    def updates(self, priorities: Tensor) -> list[Tensor]:
        """Raw priorities [B] as each of `shards` is to be told them: float64 [3, k].

        Raises:
            ValueError: they are not one for each item, or one is negative, infinite or NaN.
        """
        values = priorities.detach().to("cpu", torch.float64).numpy()
        if values.shape != (len(self),):
            raise ValueError(f"a batch of {len(self)} needs as many priorities, not {list(values.shape)}")
        if not (values.min() >= 0 and values.max() < np.inf):
            raise ValueError("priorities must be finite and at least 0")
        borders = list(itertools.accumulate(count for _, count in self.shards))[:-1]
        return [
            torch.from_numpy(part.copy())
            for part in np.split(np.vstack((self.places.numpy(), values)), borders, axis=1)
        ]


def split_into_batches(parts: Sequence[ShardSample], batches: int, first: int) -> list[list[ShardSample]]:
    """Give out what came for several batches in turn, an item each, beginning with batch `first`.

    Items lie in the order of the masses that they were drawn from, so each batch is as evenly spread as all are together;
    with a `first` at random, each item comes into each of them as often as if it were drawn alone. Batches that get
    nothing are left out.
    """
    hands: list[list[ShardSample]] = [[] for _ in range(batches)]
    turn = first
    for part in parts:
        for number, hand in enumerate(hands):
            rows = slice((number - turn) % batches, None, batches)
            drawn = part.drawn[:, rows]
            if drawn.shape[1]:
                items = {name: column[rows] for name, column in part.items.items()}
                hand.append(part._replace(items=items, drawn=drawn))
        turn += part.drawn.shape[1]
    return [hand for hand in hands if hand]


def assemble(hand: BatchShards, exponent: float) -> ReplayBatch:
    """Join what a batch is made of. `exponent`: β of the importance weights."""
    parts = hand.parts
    rows = [part.drawn.numpy() for part in parts]
    # Of an item in one draw from all shards, as they were when it was split and as each was when it on_sampled: exact for what
    # was done, also if masses changed in between.
    probabilities = np.concatenate([row[2] * part.share for row, part in zip(rows, parts, strict=True)])
    weights = importance_weights(torch.from_numpy(probabilities), hand.total, exponent)
    largest = float(weights.max())
    if hand.least < inf:
        largest = max(largest, (hand.total * hand.least) ** -exponent)
    return ReplayBatch(
        number=hand.number,
        items={name: _join([part.items[name] for part in parts]) for name in parts[0].items},
        weights=weights,
        largest_weight=largest,
        ages=torch.from_numpy(np.concatenate([row[3] for row in rows]).astype(np.int64)),
        places=torch.from_numpy(np.concatenate([row[:2] for row in rows], axis=1)),
        shards=tuple((part.shard, part.drawn.shape[1]) for part in parts),
    )


def _join(columns: list[Tensor]) -> Tensor:
    return columns[0] if len(columns) == 1 else torch.cat(columns)
