"""Prioritized replay as a library: in one process, with numpy or torch, without a job.

from rltraining_trainer.replay import PrioritizedReplay

replay = PrioritizedReplay(100_000)
replay.add({"observation": observation, "action": 1, "reward": 0.5})
batch = replay.sample(256)
replay.update_priorities(batch, abs(errors) + 1e-6)
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rltraining_trainer.dataflow.replay.batch import importance_weights
from rltraining_trainer.dataflow.replay.buffer import ReplayBuffer, SampleResult
from rltraining_trainer.dataflow.replay.items import infer_columns, to_tensors
from rltraining_trainer.dataflow.replay.rate_limiter import RateLimiter
from rltraining_trainer.dataflow.replay.storage import Column

__all__ = ["PrioritizedReplay", "ReplaySample", "TableStats"]


@dataclass(frozen=True, eq=False)
class ReplaySample:
    """B items, sampled with replacement. ``sample["reward"]`` is a column."""

    items: dict[str, Any]
    """Copies ``[B, ...]``: tensors if the first insertion had a tensor, otherwise numpy arrays."""
    weights: Any
    """float32 ``[B]``: importance weights ``(N·P(i))^-β``, divided by the largest of the batch."""
    keys: Any
    """int64 ``[B]``: numbers of the insertions, for `update_priorities`."""

    def __getitem__(self, column: str) -> Any:
        return self.items[column]

    def __len__(self) -> int:
        return len(self.keys)


class TableStats(NamedTuple):
    """Counts of items since the table was created. Invariant: ``inserted = evicted + size``."""

    size: int
    inserted: int
    evicted: int
    sampled: int
    updated: int
    """Number of updated priorities."""
    stale: int
    """Priority updates of items that had already been evicted."""

    @property
    def samples_per_insert(self) -> float:
        """Average number of samples per inserted item."""
        return self.sampled / self.inserted if self.inserted else 0.0


class PrioritizedReplay:
    """A table of items that are sampled by priority (Schaul et al. 2016, arXiv 1511.05952).

    - An *item* is a mapping of names to arrays. The first insertion fixes names, shapes and types.
    - The *sampler* draws item i with probability ``p_i^α / Σ p^α``, where α is
      ``priority_exponent``. 0 samples uniformly. An item with priority 0 is never drawn.
    - The *remover* evicts the oldest item when the *table* is full.
    - The *rate limiter* keeps a ratio of samples to insertions. See `can_sample`.

    All methods are thread-safe, and none blocks until another thread adds items.

    Args:
        capacity: Maximum number of items. Memory is allocated as the table fills.
        priority_exponent: α.
        importance_exponent: β of the importance weights. 1 corrects the bias of the sampler
            completely, 0 not at all.
        min_size: Insertions before the first sample.
        samples_per_insert: Average number of times that each item may be sampled. None: no limit.
        frame_stack: If above 1, the columns ``observation`` and ``next_observation`` are stacks of
            this many frames along their first axis, and each distinct frame is stored once.
        seed: Seed of the sampler.

    Raises:
        ValueError: An argument is out of range.
    """

    def __init__(
        self,
        capacity: int,
        *,
        priority_exponent: float = 0.6,
        importance_exponent: float = 0.4,
        min_size: int = 1,
        samples_per_insert: float | None = None,
        frame_stack: int = 1,
        seed: int = 0,
    ) -> None:
        for name, value, least in (
            ("capacity", capacity, 1),
            ("min_size", min_size, 1),
            ("frame_stack", frame_stack, 1),
        ):
            if value < least:
                raise ValueError(f"{name} must be at least {least}, not {value}")
        for name, exponent in (
            ("priority_exponent", priority_exponent),
            ("importance_exponent", importance_exponent),
        ):
            if not 0 <= exponent <= 1:
                raise ValueError(f"{name} must be within [0, 1], not {exponent}")
        if samples_per_insert is not None and not 0 < samples_per_insert < float("inf"):
            raise ValueError(f"samples_per_insert must be positive, not {samples_per_insert}")
        self._capacity, self._frame_stack, self._seed = capacity, frame_stack, seed
        self._priority_exponent, self._importance_exponent = priority_exponent, importance_exponent
        self._min_size, self._samples_per_insert = min_size, samples_per_insert
        self._lock = threading.Lock()
        self._columns: dict[str, Column] = {}
        # Created by the first insertion.
        self._buffer: ReplayBuffer | None = None
        self._tensors = False

    def __len__(self) -> int:
        """Returns the number of items."""
        return self._buffer.size if self._buffer is not None else 0

    def add(self, item: Mapping[str, Any], priority: float | None = None) -> None:
        """Adds one item. See `extend`."""
        rows = {
            name: value[None] if isinstance(value, Tensor) else np.expand_dims(value, 0)
            for name, value in item.items()
        }
        scalars = {name: [value] for name, value in item.items() if isinstance(value, bool | int | float)}
        self.extend(rows | scalars, None if priority is None else [priority])

    def extend(self, items: Mapping[str, Any], priorities: Any = None) -> None:
        """Adds K items, and evicts the oldest items if the table is full.

        Args:
            items: Columns ``[K, ...]`` as numpy arrays, tensors or lists of numbers. Numbers are
                converted to the column's type if they are of the same kind.
            priorities: ``[K]``, finite and at least 0. None: the largest priority so far, and at
                least 1.

        Raises:
            ValueError: Names, shapes or kinds of numbers differ from the first insertion, or a
                priority is out of range. Nothing is added.
        """
        with self._lock:
            buffer, columns = self._buffer, self._columns
            if buffer is None:
                columns = infer_columns(items)
                buffer = self._make_buffer(columns)
            # Convert the items and priorities.
            tensors = to_tensors(items, columns)
            buffer.add(tensors, None if priorities is None else _as_priorities(priorities))
            if self._buffer is None:
                self._buffer, self._columns = buffer, columns
                self._tensors = any(isinstance(rows, Tensor) for rows in items.values())

    def can_sample(self, batch_size: int) -> bool:
        """Returns whether the rate limiter permits to sample ``batch_size`` items now.

        That requires ``min_size`` insertions. Samples may then be at most two batches ahead of
        ``samples_per_insert`` for each further insertion. `sample` does not check the rate limiter:

            while replay.can_sample(256):
                learn(replay.sample(256))
        """
        with self._lock:
            if self._buffer is None or self._buffer.size == 0:
                return False
            limiter = RateLimiter(self._samples_per_insert, 0.0, self._min_size, batch_size)
            counts = self._buffer.counts
            return limiter.may_sample(counts.inserted, counts.sampled, batch_size)

    def sample(self, batch_size: int, importance_exponent: float | None = None) -> ReplaySample:
        """Samples ``batch_size`` items, one from each of as many equal parts of the priority sum.

        Args:
            batch_size: Number of items.
            importance_exponent: β for this batch, often annealed to 1. None: that of the table.

        Raises:
            ValueError: No item has a positive priority, or ``batch_size`` is below 1.
        """
        exponent = self._importance_exponent if importance_exponent is None else importance_exponent
        with self._lock:
            if self._buffer is None:
                raise ValueError("nothing can be sampled: the table is empty")
            drawn, size = self._buffer.sample(batch_size), self._buffer.size
        weights = importance_weights(drawn.probabilities, size, exponent)
        return self._sample(drawn, weights.div_(weights.max()))

    def update_priorities(self, sample: ReplaySample, priorities: Any) -> None:
        """Updates the priorities ``[B]`` of the items of ``sample``. Evicted items count as
        ``stale``.

        Raises:
            ValueError: The number of priorities is wrong, or one is negative, infinite or NaN.
                Nothing is updated.
        """
        keys = torch.as_tensor(sample.keys)
        new = _as_priorities(priorities)
        if new.shape != keys.shape:
            raise ValueError(f"a sample of {len(keys)} needs as many priorities, not {list(new.shape)}")
        with self._lock:
            if self._buffer is None:
                raise ValueError("nothing was sampled from this table: it is empty")
            self._buffer.update(keys % self._capacity, keys, new)

    def stats(self) -> TableStats:
        """Returns the current counts."""
        with self._lock:
            if self._buffer is None:
                return TableStats(0, 0, 0, 0, 0, 0)
            inserted, evicted, sampled, updated, stale = self._buffer.counts
            return TableStats(self._buffer.size, inserted, evicted, sampled, updated, stale)

    def state_dict(self) -> dict[str, Any]:
        """Returns a copy of the table for `torch.save`, including the sampler's random state."""
        with self._lock:
            columns = {name: (list(shape), str(dtype)) for name, (shape, dtype) in self._columns.items()}
            buffer = None if self._buffer is None else self._buffer.get_state()
            return {"columns": columns, "tensors": self._tensors, "buffer": buffer}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores ``state``. Sampling continues identically.

        The exponents and the rate limiter of this table are kept.

        Raises:
            ValueError: The saved table has another capacity or frame stack. Nothing is restored.
        """
        columns = {
            name: Column(tuple(shape), getattr(torch, dtype.removeprefix("torch.")))
            for name, (shape, dtype) in state["columns"].items()
        }
        buffer = None
        if state["buffer"] is not None:
            buffer = self._make_buffer(columns)
            buffer.set_state(state["buffer"])
        with self._lock:
            self._columns, self._buffer, self._tensors = columns, buffer, state["tensors"]

    def _make_buffer(self, columns: Mapping[str, Column]) -> ReplayBuffer:
        return ReplayBuffer(
            self._capacity,
            columns,
            kind="Prioritized",
            priority_exponent=self._priority_exponent,
            frame_stack=self._frame_stack,
            seed=self._seed,
        )

    def _sample(self, drawn: SampleResult, weights: Tensor) -> ReplaySample:
        if self._tensors:
            return ReplaySample(drawn.items, weights, drawn.versions)
        items = {name: rows.numpy() for name, rows in drawn.items.items()}
        return ReplaySample(items, weights.numpy(), drawn.versions.numpy())


def _as_priorities(values: Any) -> Tensor:
    return torch.as_tensor(values, dtype=torch.float64).detach().cpu()
