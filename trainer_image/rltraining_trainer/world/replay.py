"""`world.replay()`: a prioritized replay with a shard in each sampler.

The learner samples all shards as one table.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from rltraining_api.algorithms.replay import Replay as ReplaySettings
from rltraining_api.status import ReplayStatus

from rltraining_trainer.dataflow.replay import (
    DistributedReplay,
    ReplayBatch,
    ReplayBuffer,
    ReplayShard,
    ReplayStats,
)
from rltraining_trainer.dataflow.replay.items import infer_columns, to_tensors
from rltraining_trainer.dataflow.replay.storage import Column
from rltraining_trainer.dataflow.reports import SamplerReports
from rltraining_trainer.transport import Call, Endpoint, Payload, Peer, Stopped
from rltraining_trainer.world.members import CALL
from rltraining_trainer.world.reporter import Reporter
from rltraining_trainer.world.services import INNER, Services

SERVICE = f"{INNER}replay/"
"""Prefix of the names of a shard's services."""
RELEASE_SECONDS = 0.02
"""While the learner waits for a batch, it releases blocked samplers with this period."""


class Replay:
    """A distributed prioritized replay, made by `World.replay`. Samplers insert, the learner samples.

    Each sampler stores the items that it inserts, and only samples are sent. The learner samples
    from all shards with the probabilities and importance weights of a single table. Every item is
    counted exactly once: ``inserted = evicted + size + lost``. The items of a sampler that dies are
    ``lost``.

        def sampler(world):                                 def learner(world):
            replay = world.replay(capacity=50_000, ...)         replay = world.replay(capacity=50_000, ...)
            world.start()                                       run = world.run(policy, optimizer=optimizer)
            while True:                                         while run.goes_on():
                ...                                                 batch = replay.sample()
                replay.extend(transitions)                          if batch is not None:
                world.count(steps, returns)                             error = ...
                                                                        replay.update_priorities(batch, error.abs())
                                                                        run.update(loss=loss)
    """

    def extend(self, items: Mapping[str, Any], priorities: Any = None) -> None:
        """In a sampler: inserts K items. A full shard evicts its oldest items.

        Blocks while the rate limiter holds the samplers back, and until learner 0 has seen the shard.

        Args:
            items: columns ``[K, ...]``, numpy arrays or tensors, always with the same names, shapes and types.
            priorities: ``[K]``, finite and at least 0; None: the shard's largest priority so far, and at
                least 1.

        Raises:
            ValueError: the items differ from the first insertion, or a priority is out of range.
            Stopped: the run is done, or this process should end.
        """
        raise RuntimeError("replay.extend() is for samplers")

    def sample(self, timeout: float = 1.0) -> ReplayBatch | None:
        """In the learner: returns the next batch, with tensors ``batch["name"]`` ``[B, ...]``.

        ``batch.weights`` ``[B]`` are importance weights, divided by the largest of the batch. B is the
        ``batch_size``, or less if a sampler died meanwhile.

        Returns:
            None after ``timeout`` seconds: there are fewer than ``minimum`` items, or the samplers are behind.

        Raises:
            Stopped: this process should end.
        """
        raise RuntimeError("replay.sample() is for the learner")

    def update_priorities(self, batch: ReplayBatch, priorities: Any) -> None:
        """In the learner: sets the priorities ``[B]`` of a batch, once.

        The priorities are sent with the next request to each shard. Updates of evicted items count
        as stale.

        Raises:
            ValueError: there is not one priority for each item, one is negative, infinite or NaN, or the
                priorities of this batch were set before.
        """
        raise RuntimeError("replay.update_priorities() is for the learner")

    def stats(self) -> ReplayStats:
        """In the learner: returns the current counters."""
        raise RuntimeError("replay.stats() is for the learner")


class LearnerReplay(Replay):
    """The learner's side: a `DataPath`.

    Args:
        reports: receives the reports of shards. Delayed answers block the samplers.
        item_bytes: approximate size of an item, which limits the number of items per request.
    """

    def __init__(
        self,
        settings: ReplaySettings,
        batch_size: int,
        *,
        seed: int,
        item_bytes: int,
        endpoint: Callable[[], Endpoint],
        reports: SamplerReports,
        stopping: threading.Event,
    ) -> None:
        self._endpoint, self._reports, self._stopping = endpoint, reports, stopping
        self._keepers: dict[str, str] = {}  # by URL
        self._replay = DistributedReplay(self._dial, settings, batch_size, seed=seed, item_bytes=item_bytes)

    def announce(self, keeper: str, shard: dict[str, Any], lived: bool) -> None:
        """Adds the shard that a sampler reports (see `SamplerReports`)."""
        self._keepers[shard["url"]] = keeper
        self._replay.announce(keeper, now=time.monotonic(), served_before=lived, **shard)

    def insert_limit(self, keeper: str) -> int | None:
        return self._replay.insert_limit(keeper)

    def sample(self, timeout: float = 1.0) -> ReplayBatch | None:
        deadline = time.monotonic() + timeout
        while not self._stopping.is_set():
            self.tick()
            left = deadline - time.monotonic()
            batch = self._replay.next_batch(max(0.0, min(RELEASE_SECONDS, left)))
            if batch is not None:
                return replace(batch, weights=batch.weights / batch.largest_weight)
            if left <= 0.0:
                return None
        raise Stopped("asked to end")

    def update_priorities(self, batch: ReplayBatch, priorities: Any) -> None:
        self._replay.update(batch, torch.as_tensor(priorities))

    def stats(self) -> ReplayStats:
        return self._replay.stats()

    def status(self) -> ReplayStatus:
        return self._replay.stats().status()

    def metrics(self) -> dict[str, float | None]:
        return self._replay.stats().metrics()

    def tick(self) -> None:
        self._reports.release()

    def finish(self) -> None:
        self._reports.finish()

    def close(self) -> None:
        self._replay.close()

    def get_state(self) -> dict[str, Any]:
        return self._replay.get_state()

    def set_state(self, state: dict[str, Any]) -> None:
        self._replay.set_state(state)

    def _dial(self, url: str) -> _ShardOfMember:
        return _ShardOfMember(self._endpoint().dial(url), self._keepers[url])


class SamplerReplay(Replay):
    """A sampler's side: its shard, made by the first insertion.

    Args:
        capacity: of this shard.
    """

    def __init__(
        self,
        settings: ReplaySettings,
        capacity: int,
        *,
        seed: int,
        services: Services,
        reporter: Reporter,
    ) -> None:
        self._settings, self._capacity, self._seed = settings, capacity, seed
        self._services, self._reporter = services, reporter
        self._columns: dict[str, Column] = {}
        self._buffer: ReplayBuffer | None = None
        self._shard: ReplayShard | None = None

    def extend(self, items: Mapping[str, Any], priorities: Any = None) -> None:
        if self._shard is None or self._buffer is None:
            self._columns = infer_columns(items)
            self._buffer, self._shard = self._make_shard()
        tensors = to_tensors(items, self._columns)
        if priorities is None:
            count = len(next(iter(tensors.values()), ()))
            weights = torch.full((count,), self._buffer.largest_priority, dtype=torch.float64)
        else:
            weights = torch.as_tensor(priorities, dtype=torch.float64).detach().cpu()
        self._shard.add(tensors, weights)
        self._reporter.wait_for_room(self._shard)

    def _make_shard(self) -> tuple[ReplayBuffer, ReplayShard]:
        buffer = ReplayBuffer(
            self._capacity,
            self._columns,
            kind=self._settings.kind,
            priority_exponent=self._settings.priority_exponent,
            frame_stack=self._settings.frame_stack,
            seed=self._seed,
        )
        shard = ReplayShard(buffer)
        shard.set_limit(0)  # until learner 0 has answered the first report
        for service, handler in shard.services.items():
            self._services.add(SERVICE + service, handler)
        self._reporter.keep(shard)
        return buffer, shard


class _ShardOfMember:
    """A `ShardPeer` that calls a shard's services through its sampler's services."""

    def __init__(self, peer: Peer, keeper: str) -> None:
        self._peer, self._keeper = peer, keeper

    def call(self, service: str, payload: Payload, *, timeout: float | None = None) -> Call:
        return self._peer.call(CALL, (self._keeper, SERVICE + service, payload), timeout=timeout)
