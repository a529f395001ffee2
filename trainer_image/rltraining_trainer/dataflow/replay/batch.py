"""Splits a sample over shards, and joins the samples of shards into batches."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor, inf
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rltraining_trainer.dataflow.replay.shard_map import Shard

_ROUNDING = 2.0**-50
"""Upper bound of the relative rounding error of a product and a quotient."""


class ShardSample(NamedTuple):
    """Items that were sampled from one shard."""

    shard: Shard
    share: float
    """Probability of sampling from this shard at the time when the sample was split."""
    items: dict[str, Tensor]
    """Columns ``[k, ...]``."""
    drawn: Tensor
    """float64 ``[4, k]`` with k > 0: the SAMPLE_FIELDS of the module shard."""


class BatchShards(NamedTuple):
    """The samples that form one batch."""

    number: int
    """Number of the batch, counted by its learner."""
    parts: Sequence[ShardSample]
    """At least one sample."""
    total: int
    """Number of items in all shards."""
    least: float
    """Probability of the least likely item in all shards. Infinity: use the largest weight of the batch."""

    @property
    def size(self) -> int:
        return sum(part.drawn.shape[1] for part in self.parts)


@dataclass(frozen=True, eq=False)
class ReplayBatch:
    """B items from all shards."""

    number: int
    """Number of the batch, counted by its learner."""
    items: dict[str, Tensor]
    """Columns ``[B, ...]``."""
    weights: Tensor
    """float32 ``[B]``: importance weights ``(N·P)^-β``, not normalized."""
    largest_weight: float
    """The largest weight of this batch, or with importanceNormalizer Buffer of all items in the shards.
    Learners divide their weights by the maximum of this value over all learners."""
    ages: Tensor
    """int64 ``[B]``: number of insertions into the shard since the item was added."""
    places: Tensor
    """float64 ``[2, B]``: slots and versions of the items in their shards."""
    shards: tuple[tuple[Shard, int], ...]
    """Shards in the order of the items, each with its number of items."""

    def __len__(self) -> int:
        return len(self.weights)

    def __getitem__(self, column: str) -> Tensor:
        if column not in self.items:
            raise KeyError(f"{column}: the batch has {', '.join(sorted(self.items))}")
        return self.items[column]

    def updates(self, priorities: Tensor) -> list[Tensor]:
        """Splits raw priorities ``[B]`` into one update, float64 ``[3, k]``, for each of `shards`.

        Raises:
            ValueError: The shape is wrong, or a priority is negative, infinite or NaN.
        """
        values = priorities.detach().to("cpu", torch.float64).numpy()
        if values.shape != (len(self),):
            raise ValueError(
                f"a batch of {len(self)} items needs priorities [{len(self)}], not {list(values.shape)}"
            )
        if not (values.min() >= 0 and values.max() < np.inf):
            raise ValueError("priorities must be finite and at least 0")
        ends = list(itertools.accumulate(count for _, count in self.shards))[:-1]
        return [
            torch.from_numpy(part.copy())
            for part in np.split(np.vstack((self.places.numpy(), values)), ends, axis=1)
        ]


def stratified_counts(sums: Sequence[float], count: int, offset: float) -> list[int]:
    """Splits a sample of `count` items over shards in proportion to their priority sums.

    This is systematic sampling. The sums w_i form a line of length W = Σ w_i, with `count` points at
    (j + offset)·W/count for j = 0, 1, …, and each shard gets the points in its interval. The total
    is exact, and each shard gets count·w_i/W rounded up or down. If the offset is uniform in [0, 1),
    the expected number is count·w_i/W. If shard i then samples with probability p/w_i, an item of
    priority p is sampled count·p/W times on average, as from one table. A shard with sum 0 gets no
    items.

    Raises:
        ValueError: A sum is negative or not finite, all are 0, `count` is negative, or `offset` is
            outside [0, 1).
    """
    if not all(0 <= value < inf for value in sums):
        raise ValueError(f"the priority sums of shards must be finite and at least 0, not {list(sums)}")
    if count < 0 or not 0 <= offset < 1:
        raise ValueError(f"cannot split {count} draws with an offset of {offset}")
    ends = list(itertools.accumulate(sums))
    total = ends[-1] if ends else 0.0
    if not 0 < total < inf:
        raise ValueError("there is nothing to draw from: all priority sums are 0")
    # Count the points before the end of each interval. The end of the line comes after all points.
    before = [count if end == total else _points_before(end, count, total, offset) for end in ends]
    return [here - previous for here, previous in zip(before, [0, *before], strict=False)]


def _points_before(end: float, count: int, total: float, offset: float) -> int:
    """Returns how many points j + offset are below end·count/total.

    The number is the integer part of end·count/total, plus 1 if the fraction exceeds the offset. It
    is computed with exact fractions in the rare case where rounding errors could change it.
    """
    position = end * count / total
    whole = floor(position)
    fraction = position - whole
    if min(abs(fraction - offset), fraction, 1 - fraction) > position * _ROUNDING:
        return whole + (fraction > offset)
    exact = Fraction(end) * count / Fraction(total)
    whole = floor(exact)
    return whole + (exact - whole > Fraction(offset))


def split_into_batches(parts: Sequence[ShardSample], batches: int, first: int) -> list[list[ShardSample]]:
    """Distributes the items of a joint sample over batches in turn, starting with batch `first`.

    The items are stratified, so each batch is as evenly spread as the joint sample. If `first` is
    random, each item is equally likely in each batch. Empty batches are omitted.
    """
    result: list[list[ShardSample]] = [[] for _ in range(batches)]
    turn = first
    for part in parts:
        for number, batch in enumerate(result):
            rows = slice((number - turn) % batches, None, batches)
            drawn = part.drawn[:, rows]
            if drawn.shape[1]:
                items = {name: column[rows] for name, column in part.items.items()}
                batch.append(part._replace(items=items, drawn=drawn))
        turn += part.drawn.shape[1]
    return [batch for batch in result if batch]


def importance_weights(probabilities: Tensor, total: int, exponent: float) -> Tensor:
    """Computes w_i = (N·P(i))^-β (Schaul et al. 2016, arXiv 1511.05952, section 3.4).

    The caller divides the weights by one maximum for all items of an update: the largest weight of
    the batch, or of all shards.

    Args:
        probabilities: P, float64 ``[B]``: probability of each item in one draw from all shards.
        total: N, the number of items in all shards.
        exponent: β. 1 corrects the bias of prioritized sampling completely, and 0 does not correct it.

    Returns:
        float32 ``[B]``.

    Raises:
        ValueError: A probability or `total` is not positive.
    """
    if total < 1:
        raise ValueError(f"weights need items, not {total}")
    if not bool((probabilities > 0).all()):
        raise ValueError("an item whose probability is not positive cannot have been drawn")
    return (total * probabilities).pow(-exponent).float()


def assemble(batch: BatchShards, exponent: float) -> ReplayBatch:
    """Joins the samples of a batch. `exponent` is β of the importance weights."""
    parts = batch.parts
    rows = [part.drawn.numpy() for part in parts]
    # Multiply the probability of the shard, when the sample was split, by the probability of the item
    # in its shard. The product is exact even if priorities have changed in between.
    probabilities = np.concatenate([row[2] * part.share for row, part in zip(rows, parts, strict=True)])
    weights = importance_weights(torch.from_numpy(probabilities), batch.total, exponent)
    largest = float(weights.max())
    if batch.least < inf:
        largest = max(largest, (batch.total * batch.least) ** -exponent)
    return ReplayBatch(
        number=batch.number,
        items={name: _join([part.items[name] for part in parts]) for name in parts[0].items},
        weights=weights,
        largest_weight=largest,
        ages=torch.from_numpy(np.concatenate([row[3] for row in rows]).astype(np.int64)),
        places=torch.from_numpy(np.concatenate([row[:2] for row in rows], axis=1)),
        shards=tuple((part.shard, part.drawn.shape[1]) for part in parts),
    )


def _join(columns: list[Tensor]) -> Tensor:
    return columns[0] if len(columns) == 1 else torch.cat(columns)
