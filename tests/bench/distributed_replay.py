"""Two shards in processes of their own, each with a writer that appends as a sampler does, and this process as the learner
that draws batches of 512 and returns their priorities. Nothing is learned: what the memory alone can carry."""

from __future__ import annotations

import multiprocessing as mp
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import NamedTuple

import torch
from rltraining_api.algorithms.replay import Replay
from rltraining_trainer.dataflow.replay import Column, DistributedReplay, ReplayBuffer, ReplayShard
from rltraining_trainer.roles.main import keep_memory
from rltraining_trainer.transport import Endpoint
from torch import Tensor

from tests.bench.table import print_table, thousands

TOKEN = "bench"
SHARDS = 2
BATCH = 512
SECONDS = 4.0


class Kind(NamedTuple):
    """What is stored, and what is wanted."""

    name: str
    observation: Column
    next_observation: Column
    capacity: int
    """Of each shard."""
    block: int
    """Transitions that a writer appends at once."""
    pace: int
    """Appends per second that all writers together keep to."""
    wanted: int
    """Transitions per second that are drawn and updated."""
    wanted_appends: int


_VECTOR = Column((4,), torch.float32)
_FRAMES = Column((4, 84, 84), torch.uint8)  # 28 KB
_NONE = Column((0,), torch.float32)
KINDS = (
    Kind("small", _VECTOR, _VECTOR, 100_000, 512, 104_000, 250_000, 100_000),
    Kind("Atari, 28 KB", _FRAMES, _NONE, 20_000, 64, 26_000, 60_000, 0),
)


def run(seeds: int) -> None:
    os.environ["TP_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    sys.setswitchinterval(0.0005)
    keep_memory()
    rows = []
    for kind in KINDS:
        with _shards(kind) as (replay, endpoint):
            _cycle(replay, 0.5)
            before, cpu = replay.stats(), time.process_time()
            began = time.monotonic()
            _cycle(replay, SECONDS)
            seconds = time.monotonic() - began
            after = replay.stats()
            replay.check_valid()
            drawn = after.applied + after.stale - before.applied - before.stale
            rows.append(
                (
                    kind.name,
                    thousands(drawn / seconds),
                    thousands(kind.wanted),
                    thousands((after.inserted - before.inserted) / seconds),
                    thousands(kind.wanted_appends) if kind.wanted_appends else "-",
                    f"{(after.stale - before.stale) / drawn:.1%}",
                    f"{(time.process_time() - cpu) / seconds:.2f}",
                )
            )
            endpoint.stop()
    print_table(
        (f"batch {BATCH}", "drawn + updated/s", "wanted", "appends/s", "wanted", "stale", "learner's cores"),
        rows,
    )
    print(
        "\nWriters keep to a pace: 104 k appends/s of small items, 26 k of Atari's, if they are not slowed down."
    )


def _cycle(replay: DistributedReplay, seconds: float) -> None:
    priorities = torch.rand(BATCH)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        batch = replay.next_batch(1.0)
        assert batch is not None, "no batch came"
        replay.update(batch, priorities[: len(batch)])


@contextmanager
def _shards(kind: Kind) -> Iterator[tuple[DistributedReplay, Endpoint]]:
    endpoint = Endpoint("learner", TOKEN)
    endpoint.start()
    replay = DistributedReplay(endpoint.dial, Replay(minimum=BATCH), BATCH, seed=0)
    context = mp.get_context("spawn")
    pipes, processes = [], []
    for number in range(SHARDS):
        here, there = mp.Pipe()
        process = context.Process(target=_keep, args=(kind, number, there), daemon=True)
        process.start()
        pipes.append(here)
        processes.append(process)
    for number, described in enumerate([pipe.recv() for pipe in pipes]):
        replay.announce(f"shard-{number}", now=time.monotonic(), **described)
    for pipe in pipes:
        pipe.send("write")
    try:
        yield replay, endpoint
    finally:
        for process in processes:
            process.kill()
            process.join()


def _keep(kind: Kind, number: int, pipe: Connection) -> None:
    """In a process of its own: keeps a full shard, and appends to it."""
    torch.set_num_threads(1)
    sys.setswitchinterval(0.0005)
    keep_memory()
    buffer = ReplayBuffer(
        kind.capacity, _columns(kind), kind="Prioritized", priority_exponent=0.6, seed=number
    )
    shard = ReplayShard(buffer)
    endpoint = Endpoint(f"shard-{number}", TOKEN, shard.services, threads=2)
    endpoint.start()
    items, priorities = _block(kind), torch.rand(kind.block)
    for _ in range(kind.capacity // kind.block + 1):
        shard.add(items, priorities)
    pipe.send({**shard.describe(), "url": endpoint.url})
    pipe.recv()
    began, added, pace = time.monotonic(), 0, kind.pace / SHARDS
    while True:
        shard.add(items, priorities)
        added += kind.block
        time.sleep(max(0.0, began + added / pace - time.monotonic()))


def _columns(kind: Kind) -> Mapping[str, Column]:
    number = Column((), torch.float32)
    return {
        "observation": kind.observation,
        "action": Column((), torch.int64),
        "reward": number,
        "discount": number,
        "next_observation": kind.next_observation,
    }


def _block(kind: Kind) -> dict[str, Tensor]:
    return {
        name: torch.zeros((kind.block, *column.shape), dtype=column.dtype)
        for name, column in _columns(kind).items()
    }
