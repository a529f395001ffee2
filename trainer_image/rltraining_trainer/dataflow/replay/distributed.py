"""The learner's client of a replay that consists of several shards."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from math import inf
from typing import Any

from rltraining_api.algorithms.replay import Replay
from torch import Tensor

from rltraining_trainer.dataflow.replay.batch import (
    BatchShards,
    ReplayBatch,
    ShardSample,
    assemble,
    split_into_batches,
    stratified_counts,
)
from rltraining_trainer.dataflow.replay.buffer import ReplayCounts
from rltraining_trainer.dataflow.replay.rate_limiter import ShardedRateLimiter
from rltraining_trainer.dataflow.replay.requests import Request, RequestGroup
from rltraining_trainer.dataflow.replay.sample_counters import SampleCounters
from rltraining_trainer.dataflow.replay.shard import ShardPeer
from rltraining_trainer.dataflow.replay.shard_map import NO_COUNTS, Shard, ShardMap
from rltraining_trainer.dataflow.replay.stats import ReplayStats
from rltraining_trainer.transport import TransportError

_LOG = logging.getLogger(__name__)

SILENT_SECONDS = 5.0
"""Time without a message after which a shard counts as lost."""
_POLL_SECONDS = 0.005
"""How often side requests are checked while there is nothing else to do."""
_MAX_BATCHES = 4
"""Maximum number of batches per request. With several, the cost of a call is small."""
_MAX_BYTES = 48 * 2**20
"""Maximum size of an answer, which a network of 200 Mbit/s can send within CALL_SECONDS."""
_AGES_KEPT = 100
"""Number of batches over which the age of samples is averaged."""


class DistributedReplay:
    """Samples from several shards as from one table, and returns priorities to them.

    Each batch is split over the shards in proportion to their priority sums. `prefetch` batches are
    requested ahead, several per request. Priorities are returned with the next request to their
    shard. A shard that does not answer is left out until it announces itself again.

    `next_batch`, `update` and `discard` must be called by one thread, the learner's. All other
    methods are thread-safe.

    With several learners, only the first receives announcements and limits rates. The others copy
    its shard map (`shards`, `set_shards`) and sample in step with it.
    """

    def __init__(
        self,
        dial: Callable[[str], ShardPeer],
        settings: Replay,
        batch_size: int,
        *,
        seed: int,
        item_bytes: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            dial: Returns the peer at the URL of a shard. May raise TransportError.
            batch_size: Items per update of all learners together.
            item_bytes: Size of an item. 0 if it is small.
        """
        self._dial = dial
        self._batch_size = batch_size
        self._ahead = settings.prefetch + 1
        # Request half of the prefetched batches at a time, to use the others meanwhile.
        half = min(_MAX_BATCHES, 1 + settings.prefetch // 2)
        self._per_request = max(1, min(half, _MAX_BYTES // max(1, batch_size * item_bytes)))
        self._exponent = settings.importance_exponent
        self._by_buffer = settings.importance_normalizer == "Buffer"
        self._clock = clock
        self._random = random.Random(seed)
        self._rank, self._count = 0, batch_size
        self._changed = threading.Condition()
        # Number of changes that may permit more sampling.
        self._changes = 0
        self._map = ShardMap()
        self._limiter = ShardedRateLimiter(self._map, settings, batch_size)
        self._counters = SampleCounters()
        self._pending: deque[RequestGroup] = deque()
        self._ready: deque[BatchShards] = deque()
        self._side_requests: list[Request] = []  # requests that are not part of a batch
        self._batches = 0
        self._ages: deque[float] = deque(maxlen=_AGES_KEPT)

    def announce(
        self,
        name: str,
        *,
        incarnation: str,
        url: str,
        mass: float,
        counts: Iterable[int],
        now: float,
        resumed: Iterable[int] = NO_COUNTS,
        served_before: bool = False,
    ) -> None:
        """Adds or refreshes a shard (see ReplayShard.describe). Repeat well within SILENT_SECONDS.

        Args:
            mass: Sum of its powered priorities.
            counts: The five ReplayCounts since its first start.
            resumed: The counts that this incarnation has restored from a checkpoint.
            served_before: Whether this incarnation has served another learner.
        """
        current, restored = ReplayCounts(*counts), ReplayCounts(*resumed)
        with self._changed:
            if self._map.get(name) is None:
                self._limiter.exclude_prior_insertions((current if served_before else restored).inserted)
            replaced = self._map.announce(name, incarnation, url, mass, current, now, resumed=restored)
            if replaced is not None:
                _LOG.info("replay shard %s restarted with %d items", name, current.inserted - current.evicted)
                self._counters.on_shard_lost(replaced)
            self._wake()

    def shards(self) -> list[dict[str, Any]]:
        """Returns the present shards as plain values, for `set_shards` of the other learners."""
        with self._changed:
            return self._map.entries()

    def set_shards(self, entries: Iterable[dict[str, Any]]) -> None:
        """Replaces the present shards by those of the first learner."""
        with self._changed:
            for shard in self._map.merge(entries, self._clock()):
                self._counters.on_shard_lost(shard)
            self._wake()

    def set_share(self, rank: int, size: int) -> None:
        """Sets this learner's part of each batch. The lowest ranks sample the remainder."""
        if not 0 <= rank < size:
            raise ValueError(f"there is no learner {rank} of {size}")
        with self._changed:
            self._rank, self._count = rank, self._batch_size // size + (rank < self._batch_size % size)
            self._wake()

    def ready(self) -> bool:
        """Returns whether there are enough items to learn from. See ShardedRateLimiter."""
        with self._changed:
            return self._limiter.is_filled()

    def insert_limit(self, name: str) -> int | None:
        """Returns the maximum number of insertions of a shard. None: no limit."""
        with self._changed:
            return self._limiter.insert_limit(name)

    def next_batch(self, timeout: float) -> ReplayBatch | None:
        """Returns this learner's part of the next batch, to be passed to `update` or `discard`.

        The batch is smaller if a shard was lost. Returns None after `timeout` seconds without one.
        Requested items are kept for the next call.
        """
        deadline = self._clock() + timeout
        while True:
            changes = self._changes
            self._update_shards()
            self._request()
            if self._ready:
                batch = assemble(self._ready.popleft(), self._exponent)
                self._ages.append(float(batch.ages.numpy().mean()))
                return batch
            if self._pending:
                if not self._pending[0].wait(self._clock, deadline):
                    return None
                self._collect()
            elif not self._wait_for_change(changes, deadline):
                return None

    def update(self, batch: ReplayBatch, priorities: Tensor) -> None:
        """Returns raw priorities ``[B]`` of `batch` with the next request to each shard.

        Raises:
            ValueError: The shape is wrong, a priority is negative, infinite or NaN, or the batch is
                not in use.
        """
        updates = batch.updates(priorities)
        with self._changed:
            self._counters.on_batch_used(batch.number)
            for (shard, count), update in zip(batch.shards, updates, strict=True):
                if self._map.is_present(shard):
                    self._counters.add_update(shard, update)
                else:
                    self._counters.lost += count

    def discard(self, batch: ReplayBatch) -> None:
        """Drops `batch` without new priorities. Raises ValueError if it is not in use."""
        with self._changed:
            self._counters.discard(batch.number)

    def stats(self) -> ReplayStats:
        """Returns a consistent snapshot of all counts."""
        with self._changed:
            held, counters = self._map.holdings(), self._counters
            sizes = {shard.name: shard.size for shard in self._map.present}
            return ReplayStats(
                shards=len(sizes),
                size=held.size,
                inserted=held.inserted,
                evicted=held.evicted,
                lost=held.lost,
                restarted=self._map.restarted,
                drawn=counters.drawn,
                applied=counters.applied,
                stale=counters.stale,
                priorities_lost=counters.lost,
                outstanding=counters.outstanding,
                sample_age=sum(self._ages) / len(self._ages) if self._ages else 0.0,
                sizes=sizes,
            )

    def get_state(self) -> dict[str, Any]:
        """Returns the counts, without items, for the learner's checkpoint."""
        with self._changed:
            return {
                "map": self._map.get_state(),
                "pace": self._limiter.get_state(),
                "ledger": self._counters.get_state(),
            }

    def set_state(self, state: dict[str, Any]) -> None:
        """Continues the counts of a lost learner. Its outstanding samples are lost.

        Raises:
            ValueError: This replay is already in use.
        """
        with self._changed:
            if self._counters.drawn or self._map.present:
                raise ValueError("a replay that is in use cannot be restored")
            self._map.set_state(state["map"])
            self._limiter.set_state(state["pace"])
            self._counters.set_state(state["ledger"])

    def close(self) -> None:
        """Drops all pending requests."""
        with self._changed:
            for shard in self._map.present:
                shard.leave()
                self._counters.on_shard_lost(shard)
            for request in self._requests():
                self._counters.on_loss(request)
            self._pending, self._side_requests = deque(), []
            while self._ready:
                self._counters.discard(self._ready.popleft().number)
            self._wake()

    def check_valid(self) -> None:
        """Raises AssertionError with the violated invariant."""
        with self._changed:
            self._map.check_valid()
            self._counters.check_valid()
            count = sum(request.count + request.returned for request in self._requests())
            assert count == self._counters.in_flight, f"{count} are in flight, not {self._counters.in_flight}"
            updates = self._counters.shards_with_updates
            assert all(map(self._map.is_present, updates)), "an absent shard has pending updates"

    def _update_shards(self) -> None:
        """Removes silent shards, dials new ones and settles side requests."""
        now = self._clock()
        with self._changed:
            self._map.excuse_pause(now)
            for shard in self._map.present:
                if self._rank == 0 and now - shard.heard > SILENT_SECONDS:
                    self._leave(shard, f"no message for {SILENT_SECONDS} s")
                elif shard.peer is None:
                    self._connect(shard, now)
            for request in [request for request in self._side_requests if request.is_over(now)]:
                self._side_requests.remove(request)
                self._settle(request, now)

    def _connect(self, shard: Shard, now: float) -> None:
        """Dials a shard and checks whether it answers."""
        try:
            shard.peer = self._dial(shard.url)
        except TransportError as error:
            self._leave(shard, str(error))
        else:
            self._send(Request(shard, now), aside=True)

    def _request(self) -> None:
        """Requests batches, as many as may be prefetched, and returns pending priorities."""
        now = self._clock()
        with self._changed:
            # Priorities may wait for the next request if the learner still has batches.
            may_wait = self._prefetched > 0
            while (batches := self._batches_to_request()) and (group := self._split(batches, now)):
                self._pending.append(group)
                self._limiter.on_sampled(batches)
                for request in group.requests:
                    self._send(request)
                may_wait = False
            # Return the priorities that no request has taken.
            if not may_wait:
                for shard in self._counters.shards_with_updates:
                    if shard.answers:
                        self._send(Request(shard, now, update=self._counters.take_update(shard)), aside=True)

    @property
    def _prefetched(self) -> int:
        """Number of batches that are ready or requested."""
        return len(self._ready) + sum(group.batches for group in self._pending)

    def _batches_to_request(self) -> int:
        room = self._ahead - self._prefetched
        if self._prefetched and room < self._per_request:
            return 0
        most = min(room, self._per_request)
        return most if self._rank > 0 else self._limiter.may_sample(most)

    def _split(self, batches: int, now: float) -> RequestGroup | None:
        """Splits a sample over the shards. Returns None if no shard can be sampled."""
        shards = [shard for shard in self._map.present if shard.answers and shard.priority_sum > 0]
        if not shards or not self._count:
            return None
        sums = [shard.priority_sum for shard in shards]
        shares = [value / sum(sums) for value in sums]
        counts = stratified_counts(sums, self._count * batches, self._random.random())
        # With the normalizer Buffer ask all shards, since each may have the least likely item.
        requests = [
            Request(shard, now, count, share, self._counters.take_update(shard))
            for shard, count, share in zip(shards, counts, shares, strict=True)
            if count or self._by_buffer
        ]
        total = sum(shard.size for shard in shards)
        return RequestGroup(requests, batches, total, list(zip(shards, shares, strict=True)))

    def _collect(self) -> None:
        """Makes batches from the answers to the oldest requests, which are over."""
        now = self._clock()
        with self._changed:
            group, parts = self._pending.popleft(), []
            for request in group.requests:
                answer = self._settle(request, now)
                if answer is not None and request.count and answer["drawn"].shape[1]:
                    parts.append(ShardSample(request.shard, request.share, answer["items"], answer["drawn"]))
            least = group.least if self._by_buffer else inf
            for samples in split_into_batches(parts, group.batches, self._random.randrange(group.batches)):
                self._batches += 1
                batch = BatchShards(self._batches, samples, group.total, least)
                self._counters.on_batch(batch.number, batch.size)
                self._ready.append(batch)

    def _settle(self, request: Request, now: float) -> dict[str, Any] | None:
        """Counts a completed request. Returns its answer, or None if the shard was lost."""
        shard = request.shard
        try:
            answer = request.answer()
        except TransportError as error:
            self._counters.on_loss(request)
            if request.peer is shard.peer:
                self._leave(shard, str(error))
            return None
        # Update the counters and the shard.
        drawn = answer["drawn"].shape[1] if request.count else 0
        self._counters.on_answer(request, drawn, *answer["updated"])
        shard.observe(ReplayCounts(*answer["counts"]), answer["mass"], answer.get("smallest"))
        if request.peer is shard.peer:
            shard.heard, shard.answered, shard.answers = now, now, True
        return answer

    def _send(self, request: Request, *, aside: bool = False) -> None:
        self._counters.on_send(request)
        request.send(min_priority=self._by_buffer)
        if aside:
            self._side_requests.append(request)

    def _requests(self) -> list[Request]:
        return [*self._side_requests, *(request for group in self._pending for request in group.requests)]

    def _leave(self, shard: Shard, reason: str) -> None:
        _LOG.warning("replay shard %s is left out until it announces itself again: %s", shard.name, reason)
        shard.leave()
        self._counters.on_shard_lost(shard)

    def _wake(self) -> None:
        self._changes += 1
        self._changed.notify_all()

    def _wait_for_change(self, seen: int, deadline: float) -> bool:
        """Waits for a change since `seen`, or for side requests. Returns False at the deadline."""
        with self._changed:
            left = deadline - self._clock()
            if left <= 0:
                return False
            seconds = min(left, _POLL_SECONDS) if self._side_requests else left
            self._changed.wait_for(lambda: self._changes != seen, seconds)
            return True
