"""Times one replay library: ``replay_cycles.py LIBRARY``. Prints items a second, as JSON by kind of item and operation.

Run by ``replay-library`` for each library in an environment that has it, so that all are measured by the same lines.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

sys.path.append(str(Path(__file__).parents[3]))
from tests.bench.timing import cpu_seconds

BATCH, EXTEND = 512, 64
ALPHA, BETA = 0.6, 0.4


class Kind(NamedTuple):
    shape: tuple[int, ...]
    dtype: str
    capacity: int
    calls: int
    """Number of calls that are timed together."""


KINDS = {
    "small": Kind((4,), "float32", 100_000, 10),
    "Atari, 28 KB": Kind((2, 84, 84), "uint8", 20_000, 1),
}
"""Observations; an item has two of them, an action, a reward and a flag."""


class Table(NamedTuple):
    """A library's replay, set up for one kind of item."""

    add: Callable[[dict[str, Any]], object]
    """Adds one item."""
    extend: Callable[[dict[str, Any]], object]
    """Adds columns [K, ...]."""
    sample: Callable[[], Any]
    """Samples BATCH items with importance weights."""
    update: Callable[[Any, np.ndarray], object]
    """Updates the items that ``sample`` returned with new priorities."""


def ours(kind: Kind) -> Table:
    from rltraining_trainer.replay import PrioritizedReplay

    replay = PrioritizedReplay(kind.capacity, priority_exponent=ALPHA, importance_exponent=BETA)
    return Table(replay.add, replay.extend, lambda: replay.sample(BATCH), replay.update_priorities)


def cpprb(kind: Kind) -> Table:
    from cpprb import PrioritizedReplayBuffer

    columns = {
        name: {"shape": shape or 1, "dtype": dtype} for name, (shape, dtype) in columns_of(kind).items()
    }
    replay = PrioritizedReplayBuffer(kind.capacity, columns, alpha=ALPHA)
    return Table(
        lambda item: replay.add(**item),
        lambda items: replay.add(**items),
        lambda: replay.sample(BATCH, beta=BETA),
        lambda sample, priorities: replay.update_priorities(sample["indexes"], priorities),
    )


def torchrl(kind: Kind) -> Table:
    from tensordict import TensorDict
    from torchrl.data import LazyTensorStorage, TensorDictPrioritizedReplayBuffer

    storage = LazyTensorStorage(kind.capacity)
    replay = TensorDictPrioritizedReplayBuffer(alpha=ALPHA, beta=BETA, storage=storage, batch_size=BATCH)

    def update(sample: TensorDict, priorities: np.ndarray) -> None:
        sample["td_error"] = torch.from_numpy(priorities)
        replay.update_tensordict_priority(sample)

    def of(columns: dict[str, Any], size: list[int]) -> TensorDict:
        return TensorDict({name: torch.as_tensor(rows) for name, rows in columns.items()}, size)

    return Table(
        lambda item: replay.add(of(item, [])),
        lambda items: replay.extend(of(items, [len(items["reward"])])),
        replay.sample,
        update,
    )


def tianshou(kind: Kind) -> Table:
    from tianshou.data import Batch, PrioritizedReplayBuffer

    replay = PrioritizedReplayBuffer(kind.capacity, alpha=ALPHA, beta=BETA)

    def add(item: dict[str, Any]) -> None:
        replay.add(
            Batch(
                obs=item["observation"],
                act=item["action"],
                rew=item["reward"],
                terminated=item["terminated"],
                truncated=False,
                obs_next=item["next_observation"],
                info={},
            )
        )

    def extend(items: dict[str, Any]) -> None:  # the library adds one item per call
        for row in range(len(items["reward"])):
            add({name: rows[row] for name, rows in items.items()})

    return Table(
        add,
        extend,
        lambda: replay.sample(BATCH),
        lambda sample, priorities: replay.update_weight(sample[1], priorities),
    )


LIBRARIES = {"ours": ours, "tianshou": tianshou, "cpprb": cpprb, "torchrl": torchrl}


def columns_of(kind: Kind) -> dict[str, tuple[tuple[int, ...], str]]:
    return {
        "observation": (kind.shape, kind.dtype),
        "next_observation": (kind.shape, kind.dtype),
        "action": ((), "int64"),
        "reward": ((), "float32"),
        "terminated": ((), "bool"),
    }


def measure(table: Table, kind: Kind) -> dict[str, float]:
    """Returns items per second, by operation."""
    columns = {name: np.ones((EXTEND, *shape), dtype) for name, (shape, dtype) in columns_of(kind).items()}
    item = {name: rows[0] for name, rows in columns.items()}
    for _ in range(kind.capacity // EXTEND + 1):
        table.extend(columns)
    random = np.random.default_rng(0)
    priorities = random.random((97, BATCH)).astype(np.float32) + 1e-6
    # Spread the priorities, and let libraries compile code at the first call.
    for row in priorities:
        table.update(table.sample(), row)

    def cycle() -> None:
        table.update(table.sample(), priorities[random.integers(len(priorities))])

    calls: dict[str, tuple[int, Callable[[], object]]] = {
        "sample": (BATCH, table.sample),
        "cycle": (BATCH, cycle),
        "add": (1, lambda: table.add(item)),
        "extend": (EXTEND, lambda: table.extend(columns)),
    }
    return {name: count / cpu_seconds(call, 1.0, kind.calls) for name, (count, call) in calls.items()}


def main(library: str) -> None:
    torch.set_num_threads(1)
    rates = {name: measure(LIBRARIES[library](kind), kind) for name, kind in KINDS.items()}
    print(json.dumps(rates))


main(sys.argv[1])
