"""Processes that keep a shard of the replay memory."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from typing import Any

import torch
from rltraining_trainer.dataflow.replay import Column, ReplayBuffer, ReplayShard
from rltraining_trainer.transport import Backoff, Endpoint, Peer, PeerLost, Stopped, discover, on_stop_signal
from torch import Tensor
from transport_members import TOKEN, Say

COLUMNS = {"number": Column((), torch.int64), "observation": Column((16,), torch.float32)}
REPORT_SECONDS = 0.05


def items(first: int, count: int) -> dict[str, Tensor]:
    """Returns the insertions `first`, `first` + 1, … of a shard; an item's content identifies the item."""
    number = torch.arange(first, first + count)
    return {"number": number, "observation": number[:, None].expand(-1, 16).float()}


def keeper(say: Say, learner: str, name: str, capacity: int, block: int, pause: float) -> None:
    """Keeps a shard, adds a block every `pause` seconds as a sampler does, and reports to the learner.

    On the first SIGTERM, prints the number of added items and continues to serve. Ends on the second.
    """
    torch.set_num_threads(1)
    sys.setswitchinterval(0.0005)
    stopping = threading.Event()
    on_stop_signal(stopping.set)
    buffer = ReplayBuffer(capacity, COLUMNS, kind="Prioritized", priority_exponent=0.6, seed=1)
    shard = ReplayShard(buffer)
    endpoint = Endpoint(name, TOKEN, shard.services)
    endpoint.start()
    say("open")
    link = _Link(endpoint, learner, shard, stopping)
    while not stopping.is_set():
        if shard.has_room:
            shard.add(items(shard.counts.inserted, block), torch.rand(block) + 0.1)
        link.report(wait=not shard.has_room)
        stopping.wait(pause)
    link.report(wait=True)
    say(str(shard.counts.inserted))
    while True:
        time.sleep(REPORT_SECONDS)
        link.report(wait=True)


class _Link:
    """Reports to the current learner, also after the learner was replaced."""

    def __init__(
        self, endpoint: Endpoint, learner: str, shard: ReplayShard, stopping: threading.Event
    ) -> None:
        self._endpoint, self._learner, self._shard = endpoint, learner, shard
        self._peer: Peer | None = None
        self._next = 0.0

    def report(self, *, wait: bool) -> None:
        """Reports if a report is due, or if the caller needs the answer (`wait`)."""
        if not wait and time.monotonic() < self._next:
            return
        self._next = time.monotonic() + REPORT_SECONDS
        try:
            if self._peer is None:
                self._peer = self._endpoint.dial(discover(self._learner, TOKEN)["url"])
            message = {**self._shard.describe(), "url": self._endpoint.url}
            answer: Any = self._peer.call("report", message, timeout=2.0).result()
            self._shard.set_limit(answer["limit"])
        except PeerLost:
            self._peer = None


def inserter(say: Say, learner: str, name: str, block: int) -> None:
    """Keeps no shard: inserts into the learner's shard until stopped, each block twice.

    Prints the number of inserted items after each block.
    """
    stopping = threading.Event()
    on_stop_signal(stopping.set)
    endpoint = Endpoint(name, TOKEN, threads=2)
    backoff = Backoff(cap=0.1)
    for sequence in itertools.count(1):
        message = {
            "incarnation": endpoint.incarnation,
            "sequence": sequence,
            "items": items((sequence - 1) * block, block),
            "priorities": torch.ones(block),
        }
        while not stopping.is_set():
            try:
                endpoint.stop()
                endpoint.start()
                peer = endpoint.dial(discover(learner, TOKEN)["url"])
                calls = [peer.call("insert", message) for _ in range(2)]
                for call in calls:
                    call.result(stopping)
                break
            except PeerLost:
                backoff.wait(stopping)
            except Stopped:
                break
        if stopping.is_set():
            break
        say(str(sequence * block))
    endpoint.stop()


ROLES = {role.__name__: role for role in (keeper, inserter)}
