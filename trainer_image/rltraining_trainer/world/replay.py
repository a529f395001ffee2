"""`world.replay()`: a prioritized replay that is distributed over shards.

Each sampler keeps a shard, or learner 0 keeps the only one, or separate pods keep them. The learners sample all
shards as one table.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from rltraining_api.algorithms.replay import Replay as ReplaySettings
from rltraining_api.contract import Warning
from rltraining_api.status import ReplayStatus
from torch import Tensor

from rltraining_trainer.dataflow.fields import field
from rltraining_trainer.dataflow.replay import (
    DistributedReplay,
    LocalPeer,
    ReplayBatch,
    ReplayStats,
    ShardPeer,
)
from rltraining_trainer.dataflow.replay.items import infer_columns, to_tensors
from rltraining_trainer.dataflow.replay.storage import Column
from rltraining_trainer.dataflow.reports import SamplerReports
from rltraining_trainer.metrics import Numbers
from rltraining_trainer.transport import Endpoint, Handler, Payload, Stopped
from rltraining_trainer.world.data_path import DataPath, SamplerPath
from rltraining_trainer.world.members import Member, RepeatedCall
from rltraining_trainer.world.reporter import Reporter
from rltraining_trainer.world.services import INNER
from rltraining_trainer.world.session import Connections, MemberSession
from rltraining_trainer.world.shards import LocalShard

SHARDS = f"{INNER}shards"
"""The service of learner 0 that gives other learners the addresses of all shards."""
RELEASE_SECONDS = 0.02
"""Seconds between two releases of blocked samplers while the learner waits for a batch."""
_SAMPLE_COUNTS = ("drawn", "applied", "stale", "priorities_lost", "outstanding")


class Replay:
    """A distributed prioritized replay, made by `World.replay`. Samplers insert, the learner samples.

    Each sampler stores the items that it inserts, and only samples are sent. The learner samples
    from all shards with the probabilities and importance weights of a single table. Every item is
    counted exactly once: ``inserted = evicted + size + lost``. The items of a sampler that dies are
    ``lost``.

        def sampler(world):                                 def learner(world):
            replay = world.replay(capacity=50_000, ...)         replay = world.replay(capacity=50_000, ...)
            world.start(parameters)                             run = world.run(policy, optimizer=optimizer)
            while True:                                         run.publish(parameters)
                ...                                             while run.active():
                replay.extend(transitions)                          batch = replay.sample()
                world.count(steps, returns)                         if batch is not None:
                                                                        error = ...
                                                                        replay.update_priorities(batch, error.abs())
                                                                        run.update(loss=loss)
    """

    def extend(self, items: Mapping[str, Any], priorities: Any = None) -> None:
        """In a sampler: inserts K items. A full shard evicts its oldest items.

        Blocks while the rate limiter holds the samplers back, and until learner 0 has seen the shard. Then loads newer
        parameters, if there are any, into the network that `World.start` was given.

        Args:
            items: columns ``[K, ...]``, numpy arrays or tensors, always with the same names, shapes and types.
            priorities: ``[K]``, finite and at least 0. None: the shard's largest priority so far, and at
                least 1.

        Raises:
            ValueError: the items differ from the first insertion, or a priority is out of range.
            RuntimeError: `World.start` was not called before.
            Stopped: the run is done, or this process should end.
        """
        raise RuntimeError("replay.extend() is for samplers")

    def refresh(self) -> None:
        """In a sampler: requests newer parameters now. A later `extend` loads them. Does not block."""
        raise RuntimeError("replay.refresh() is for samplers")

    def sample(self, timeout: float = 1.0) -> ReplayBatch | None:
        """In the learner: returns the next batch, with tensors ``batch["name"]`` ``[B, ...]``.

        ``batch.weights`` ``[B]`` are importance weights, divided by the largest of the batch. B is the
        ``batch_size``, or less if a sampler died meanwhile.

        Returns:
            None after ``timeout`` seconds: there are fewer than ``minimum`` items, or the samplers are behind.

        Raises:
            RuntimeError: samplers wait for the first `Run.publish`.
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

    def discard(self, batch: ReplayBatch) -> None:
        """In the learner: leaves the priorities of a batch unchanged."""
        raise RuntimeError("replay.discard() is for the learner")

    def stats(self) -> ReplayStats:
        """In the learner: returns the current counters."""
        raise RuntimeError("replay.stats() is for the learner")


class LearnerReplay(Replay, DataPath):
    """A learner's side of the path. Learner 0 receives the reports of shards, and sends their addresses to the other learners.

    Args:
        name: name of this learner.
        first: None in learner 0, otherwise learner 0.
        local: the shard of this process, if learner 0 keeps it.
        reports: receives the reports of shards. Delayed answers block the samplers.
        item_bytes: approximate size of an item, which limits the number of items per request.
        large: see ``DataPath.sends_large``.
    """

    leads = True

    def __init__(
        self,
        settings: ReplaySettings,
        batch_size: int,
        *,
        name: str,
        seed: int,
        item_bytes: int,
        endpoint: Endpoint,
        reports: SamplerReports,
        stopping: threading.Event,
        first: Member | None = None,
        local: LocalShard | None = None,
        large: bool = False,
    ) -> None:
        self.sends_large = large
        self._name, self._endpoint, self._local = name, endpoint, local
        self._reports, self._stopping = reports, stopping
        self._failures: dict[str, str | None] = {}  # by keeper: error of the last checkpoint of its shard
        self._replay = DistributedReplay(self._dial, settings, batch_size, seed=seed, item_bytes=item_bytes)
        self._others = SampleCounts(self._replay.shards)
        self._call: RepeatedCall | None = None
        if first is not None:
            self._call = RepeatedCall(first, SHARDS, endpoint, self._sampled, self._replay.set_shards)

    @property
    def member_services(self) -> Mapping[str, Handler]:
        """The services that other learners call."""
        return {SHARDS: self._others.answer}

    def announce(self, keeper: str, shard: dict[str, Any], served_before: bool = False) -> None:
        """Adds the shard that a member reports (see `SamplerReports`)."""
        description = dict(shard)
        self._failures[keeper] = description.pop("failure", None)
        self._replay.announce(keeper, now=time.monotonic(), served_before=served_before, **description)

    def insert_limit(self, keeper: str) -> int | None:
        return self._replay.insert_limit(keeper)

    def sample(self, timeout: float = 1.0) -> ReplayBatch | None:
        self._reports.models.check_published("replay.sample()")
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

    def discard(self, batch: ReplayBatch) -> None:
        self._replay.discard(batch)

    def stats(self) -> ReplayStats:
        return self._others.total(self._replay.stats())

    def replay(self) -> ReplayStatus:
        return self.stats().status()

    def metrics(self) -> Numbers:
        return self.stats().metrics()

    def warnings(self) -> tuple[Warning, ...]:
        failed = {name: failure for name, failure in self._failures.copy().items() if failure}
        if not failed:
            return ()
        name, failure = min(failed.items())
        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        return (Warning(reason="ShardNotSaved", message=f"the shard of {name}{more}: {failure}"),)

    def on_group_formed(self, rank: int, size: int) -> None:
        self._replay.set_share(rank, size)

    def tick(self) -> None:
        self._reports.release()
        if self._local is not None:
            self.announce(self._name, self._local.describe())
            self._local.shard.set_limit(self._replay.insert_limit(self._name))
            self._local.tick(time.monotonic())
        if self._call is not None:
            self._call.tick(time.monotonic())

    def finish(self) -> None:
        if self._local is not None:
            self._local.shard.set_limit(None)

    def close(self) -> None:
        self._replay.close()

    def get_state(self) -> dict[str, Any]:
        return {"replay": self._replay.get_state(), "others": self._others.get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        self._replay.set_state(state["replay"])
        self._others.set_state(state["others"])

    def _dial(self, url: str) -> ShardPeer:
        if self._local is not None and url == self._endpoint.url:
            return LocalPeer(self._local.shard)
        return self._endpoint.dial(url)

    def _sampled(self) -> dict[str, int]:
        stats = self._replay.stats()
        return {name: getattr(stats, name) for name in _SAMPLE_COUNTS}


class SampleCounts:
    """Counts, in learner 0, the samples of the other learners.

    Args:
        shards: returns the addresses of all shards, which the other learners receive.
    """

    def __init__(self, shards: Callable[[], list[dict[str, Any]]]) -> None:
        self._shards, self._lock = shards, threading.Lock()
        self._counts: dict[str, dict[str, dict[str, int]]] = {}  # by learner and its incarnation

    def total(self, stats: ReplayStats) -> ReplayStats:
        """Adds the counts of the other learners to those of learner 0."""
        with self._lock:
            others = [dict(counts) for lives in self._counts.values() for counts in lives.values()]
        sums = {name: getattr(stats, name) + sum(other[name] for other in others) for name in _SAMPLE_COUNTS}
        return stats._replace(**sums)

    def get_state(self) -> dict[str, Any]:
        with self._lock:
            return {
                sender: {life: dict(counts) for life, counts in lives.items()}
                for sender, lives in self._counts.items()
            }

    def set_state(self, state: dict[str, Any]) -> None:
        """Continues from a state. Live learners report their counts again."""
        with self._lock:
            self._counts = {sender: dict(lives) for sender, lives in state.items()}

    def answer(self, sender: str, payload: Payload) -> Payload:
        counts = {name: field(payload, name, int) for name in _SAMPLE_COUNTS}
        incarnation = field(payload, "incarnation", str)
        with self._lock:
            lives = self._counts.setdefault(sender, {})
            if incarnation not in lives:  # the outstanding priorities of an earlier incarnation are lost
                for life in lives.values():
                    life["priorities_lost"] += life["outstanding"]
                    life["outstanding"] = 0
            lives[incarnation] = counts
        return self._shards()


class SamplerReplay(Replay, SamplerPath):
    """A sampler's side of the path, which keeps a shard or sends its items to the keeper of a shard.

    Args:
        keeper: base URL of the member that keeps this sampler's items. None: this sampler.
        make_shard: makes this sampler's shard, with the columns of the first insertion.
    """

    def __init__(
        self,
        connections: Connections,
        reporter: Reporter,
        keeper: str | None,
        make_shard: Callable[[Mapping[str, Column]], LocalShard],
    ) -> None:
        self._connections, self._reporter = connections, reporter
        self._keeper, self._make_shard = keeper, make_shard
        self._columns: dict[str, Column] = {}
        self._local: LocalShard | None = None
        self._inserts: MemberSession | None = None

    @property
    def version(self) -> int:
        return self._reporter.version

    def attach(self, parameters: Tensor | None) -> None:
        self._reporter.attach(parameters)

    def refresh(self) -> None:
        self._reporter.request()

    def extend(self, items: Mapping[str, Any], priorities: Any = None) -> None:
        self._connections.check_started("replay.extend()")
        if not self._columns:
            self._columns = infer_columns(items)
        tensors = to_tensors(items, self._columns)
        weights = None
        if priorities is not None:
            weights = torch.as_tensor(priorities, dtype=torch.float64).detach().cpu()
        if self._keeper is None:
            self._keep(tensors, weights)
        else:
            self._send(self._keeper, tensors, weights)
        self._reporter.load()

    def _keep(self, tensors: dict[str, Tensor], priorities: Tensor | None) -> None:
        """Inserts items into this sampler's shard."""
        if self._local is None:
            self._local = self._make_shard(self._columns)
        local = self._local
        local.shard.add(tensors, priorities)
        self._reporter.keep(local)  # not before, since it had no items
        local.tick(time.monotonic())
        self._reporter.wait_for_room(local)

    def _send(self, keeper: str, tensors: dict[str, Tensor], priorities: Tensor | None) -> None:
        """Inserts items into the shard of another member, which delays its answer while the shard is at its limit."""
        if self._inserts is None:
            self._inserts = self._connections.member(keeper, "insert")
            self._inserts.attach()
        self._inserts.send(items=tensors, priorities=priorities)
