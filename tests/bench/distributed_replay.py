"""Measures the throughput of the distributed replay memory alone, without learning.

Two shards run in separate processes, each with a writer that appends as a sampler does. This
process acts as the learner: it draws batches of 512 and returns their priorities.
"""

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
    """The stored transitions."""

    name: str
    observation: Column
    next_observation: Column
    capacity: int
    """Capacity of each shard."""
    block: int
    """Transitions per append of a writer."""
    pace: int
    """Appends per second of all writers together."""
    direct: bool
    """Transfers tensors between the processes' memories, as roles do for such observations on one machine."""


_VECTOR = Column((4,), torch.float32)
_FRAMES = Column((4, 84, 84), torch.uint8)  # 28 KB
_NONE = Column((0,), torch.float32)
KINDS = (
    Kind("small", _VECTOR, _VECTOR, 100_000, 512, 104_000, direct=False),
    Kind("Atari, 28 KB", _FRAMES, _NONE, 20_000, 64, 8_000, direct=True),
    Kind("the same by the network", _FRAMES, _NONE, 20_000, 64, 8_000, direct=False),
)


def run(seeds: int) -> None:
    os.environ["TP_SOCKET_IFNAME"] = "lo"
    os.environ["TORCH_CPP_LOG_LEVEL"] = "ERROR"  # hide the shards' warnings about the learner that left
    torch.set_num_threads(1)
    sys.setswitchinterval(0.0005)
    keep_memory()
    rows = []
    for kind in KINDS:
        with _shards(kind) as (replay, pipes):
            _cycle(replay, 0.5)
            before, cpu, busy = replay.stats(), time.process_time(), _cpu(pipes)
            began = time.monotonic()
            _cycle(replay, SECONDS)
            seconds = time.monotonic() - began
            after, cpu, busy = replay.stats(), time.process_time() - cpu, _cpu(pipes) - busy
            replay.check_valid()
        drawn = after.applied + after.stale - before.applied - before.stale
        batches = drawn / BATCH
        rows.append(
            (
                kind.name,
                thousands(drawn / seconds),
                thousands((after.inserted - before.inserted) / seconds),
                f"{(after.stale - before.stale) / drawn:.1%}",
                f"{cpu / batches * 1e3:.2f}",
                f"{busy / batches * 1e3:.2f}",
            )
        )
    header = ("sampled + updated/s", "appends/s", "stale", "learner's CPU", "shards' CPU")
    print_table((f"{SHARDS} shards, batch {BATCH}", *header), rows)
    print(
        f"\nCPU: ms a batch; the shards' with what their writers take, who keep to {KINDS[0].pace:,} small and "
        f"{KINDS[1].pace:,} Atari appends/s."
    )


def _cycle(replay: DistributedReplay, seconds: float) -> None:
    priorities = torch.rand(BATCH)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        batch = replay.next_batch(1.0)
        assert batch is not None, "no batch came"
        replay.update(batch, priorities[: len(batch)])


@contextmanager
def _shards(kind: Kind) -> Iterator[tuple[DistributedReplay, list[Connection]]]:
    endpoint = Endpoint("learner", TOKEN, direct=kind.direct)
    endpoint.start()
    item_bytes = sum(column.nbytes for column in _columns(kind).values())
    replay = DistributedReplay(endpoint.dial, Replay(minimum=BATCH), BATCH, seed=0, item_bytes=item_bytes)
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
        pipe.send("begin")
    try:
        yield replay, pipes
    finally:
        endpoint.stop()
        for process in processes:
            process.kill()
            process.join()


def _cpu(pipes: list[Connection]) -> float:
    """Returns the CPU seconds of all shards' processes."""
    for pipe in pipes:
        pipe.send("cpu")
    return sum(pipe.recv() for pipe in pipes)


def _keep(kind: Kind, number: int, pipe: Connection) -> None:
    """Runs in a separate process: keeps a full shard and appends to it."""
    torch.set_num_threads(1)
    sys.setswitchinterval(0.0005)
    keep_memory()
    buffer = ReplayBuffer(
        kind.capacity, _columns(kind), kind="Prioritized", priority_exponent=0.6, seed=number
    )
    shard = ReplayShard(buffer)
    endpoint = Endpoint(f"shard-{number}", TOKEN, shard.services, threads=2, direct=kind.direct)
    endpoint.start()
    items, priorities = _block(kind), torch.rand(kind.block)
    for _ in range(kind.capacity // kind.block + 1):
        shard.add(items, priorities)
    pipe.send({**shard.describe(), "url": endpoint.url})
    pipe.recv()
    began, added, pace = time.monotonic(), 0, kind.pace / SHARDS
    while True:
        if pipe.poll():
            pipe.recv()
            pipe.send(time.process_time())
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
