"""Measures the replay memory of one process, on one core: 100 k items, batches of 512.

A cycle is one sample followed by one update. The limit of a row is the speed of its copies alone:
numpy's gather and scatter at random slots, without tree, versions or checks. Each call draws new
slots, because repeated slots would stay in the core's cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import cycle
from typing import NamedTuple

import numpy as np
import torch
from rltraining_trainer.dataflow.replay import Column, ReplayBuffer
from rltraining_trainer.dataflow.replay.sum_tree import KERNEL
from rltraining_trainer.roles.main import keep_memory
from torch import Tensor

from tests.bench.table import print_table, thousands
from tests.bench.timing import cpu_seconds

CAPACITY = 100_000
BATCH = 512
STACK = 4
FRAME = (84, 84)
OBSERVED = "observation", "next_observation"


class Kind(NamedTuple):
    name: str
    columns: dict[str, Column]
    frame_stack: int = 1


def _columns(observation: Column, next_observation: Column) -> dict[str, Column]:
    scalars = {"action": torch.int64, "reward": torch.float32, "discount": torch.float32}
    return {
        "observation": observation,
        "next_observation": next_observation,
        **{name: Column((), dtype) for name, dtype in scalars.items()},
    }


_VECTOR = Column((4,), torch.float32)
_HALF = Column((STACK // 2, *FRAME), torch.uint8)
_STACKS = Column((STACK, *FRAME), torch.uint8)
SMALL = Kind("small", _columns(_VECTOR, _VECTOR))
ATARI = Kind("Atari, 28 KB", _columns(_HALF, _HALF))
STACKED = Kind("Atari, 2 stacks of 4, frames once", _columns(_STACKS, _STACKS), STACK)


def run(seeds: int) -> None:
    torch.set_num_threads(1)
    keep_memory()
    header = ("items/s", "append 1", "append 50", "sample 512", "update 512", "cycle 512")
    rows = [
        _limit(SMALL),
        _ours(SMALL),
        *([_ours(SMALL, compiled=False)] if KERNEL else []),
        _limit(ATARI),
        _ours(ATARI),
        _ours(STACKED),
    ]
    print_table(header, rows)
    print(f"\nsum tree: {'compiled' if KERNEL else 'numpy, as there was no compiler'}")


def _rates(kind: Kind, calls: list[tuple[int, Callable[[], object]]]) -> list[str]:
    in_turn = 10 if kind is SMALL else 1  # a draw of large items takes long enough
    return [thousands(count / cpu_seconds(call, 1.0, in_turn)) for count, call in calls]


def _limit(kind: Kind) -> tuple[str, ...]:
    columns = {
        name: np.zeros((CAPACITY, *shape), torch.empty(0, dtype=dtype).numpy().dtype)
        for name, (shape, dtype) in kind.columns.items()
    }
    for rows in columns.values():
        rows.fill(1)
    priorities, fresh = np.zeros(CAPACITY), np.ones(BATCH)
    random = np.random.default_rng(0)
    slots = cycle([np.sort(random.integers(0, CAPACITY, BATCH)) for _ in range(97)])
    starts = cycle(range(0, CAPACITY - 50, 50))
    blocks = {count: {name: rows[:count].copy() for name, rows in columns.items()} for count in (1, 50)}

    def append(count: int) -> None:
        start = next(starts)
        for name, rows in columns.items():
            rows[start : start + count] = blocks[count][name]

    def sample() -> None:
        where = next(slots)
        _ = {name: rows.take(where, 0) for name, rows in columns.items()}

    def update() -> None:
        priorities[next(slots)] = fresh

    def both() -> None:
        sample()
        update()

    calls = [
        (1, lambda: append(1)),
        (50, lambda: append(50)),
        (BATCH, sample),
        (BATCH, update),
        (BATCH, both),
    ]
    return (f"{kind.name}: limit", *_rates(kind, calls))


def _ours(kind: Kind, compiled: bool = True) -> tuple[str, ...]:
    buffer = ReplayBuffer(
        CAPACITY,
        kind.columns,
        kind="Prioritized",
        priority_exponent=0.6,
        frame_stack=kind.frame_stack,
        seed=0,
    )
    if not compiled:
        buffer._distribution._tree._kernel = None  # type: ignore[attr-defined]
    blocks = _blocks(kind, 2000)
    while buffer.counts.inserted < 1.1 * CAPACITY:
        buffer.add(*next(blocks))
    priorities = cycle([torch.rand(BATCH) + 1e-6 for _ in range(97)])
    draws = cycle([buffer.sample(BATCH) for _ in range(2 if kind is not SMALL else 97)])
    blocks_of = {count: _blocks(kind, count) for count in (1, 50)}

    def append(count: int) -> None:
        buffer.add(*next(blocks_of[count]))

    def update() -> None:
        draw = next(draws)
        buffer.update(draw.slots, draw.versions, next(priorities))

    def both() -> None:
        draw = buffer.sample(BATCH)
        buffer.update(draw.slots, draw.versions, next(priorities))

    # Append last, because appending evicts drawn items.
    calls = [(BATCH, lambda: buffer.sample(BATCH)), (BATCH, update), (BATCH, both)]
    calls += [(1, lambda: append(1)), (50, lambda: append(50))]
    sampled, updated, cycled, one, many = _rates(kind, calls)
    name = kind.name if compiled else f"{kind.name}, not compiled"
    return (name, one, many, sampled, updated, cycled)


def _blocks(kind: Kind, count: int) -> Iterator[tuple[dict[str, Tensor], Tensor]]:
    """Yields blocks of `count` transitions without end.

    The frame stacks are from one environment, which never shows the same frame twice.
    """
    items = {name: torch.ones((count, *shape), dtype=dtype) for name, (shape, dtype) in kind.columns.items()}
    priorities = torch.rand(count) + 1e-6
    frames = torch.zeros((count + STACK, *FRAME), dtype=torch.uint8)
    numbers = frames.view(-1)[: frames.numel()].view(len(frames), -1)[:, :8].view(torch.int64)
    first = count * 10**9
    while True:
        if kind.frame_stack > 1:
            numbers[:, 0] = torch.arange(first, first + len(frames))
            stacks = frames.unfold(0, STACK, 1).movedim(-1, 1)
            items |= {name: stacks[i : i + count].contiguous() for i, name in enumerate(OBSERVED)}
            first += count
        yield items, priorities
