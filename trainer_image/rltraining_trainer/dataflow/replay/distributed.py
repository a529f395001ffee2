"""One replay memory made of many shards: the learner's side."""

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

from rltraining_trainer.dataflow.replay.allotment import stratified_counts
from rltraining_trainer.dataflow.replay.batch import (
    BatchShards,
    ReplayBatch,
    ShardSample,
    assemble,
    split_into_batches,
)
from rltraining_trainer.dataflow.replay.buffer import ReplayCounts
from rltraining_trainer.dataflow.replay.ledger import SampleCounters
from rltraining_trainer.dataflow.replay.pace import ShardedRateLimiter
from rltraining_trainer.dataflow.replay.requests import Request, RequestGroup
from rltraining_trainer.dataflow.replay.shard import ShardPeer
from rltraining_trainer.dataflow.replay.shard_map import NO_COUNTS, Shard, ShardMap
from rltraining_trainer.dataflow.replay.stats import ReplayStats
from rltraining_trainer.transport import TransportError

_LOG = logging.getLogger(__name__)

SILENT_SECONDS = 5.0
"""A shard that has not been heard of for so long leaves the map."""
_GLANCE = 0.005
"""Seconds between two looks at errands, while there is nothing else to do."""
_MOST_TOGETHER = 4
"""Batches that are asked for with one message: what a call costs is then small beside what it brings."""
_MOST_BYTES = 48 * 2**20
"""Of batches that are asked for with one message: all comes within CALL_SECONDS on a network of 200 Mbit/s, on which a
shard that is alive would else be taken for dead each time."""
_AGES_KEPT = 100
"""Batches over which the age of what is drawn is averaged."""


class DistributedReplay:
    """Draws batches from shards as if they were one memory, and returns priorities to them.

    Batches are split over the shards by their masses, and asked for `prefetch` batches ahead, several with one message.
    Priorities travel with the next request to their shard. A shard that does not answer, or is silent, leaves the map until
    it announces itself again; what was under way there is lost, and the batch smaller.

    `next_batch`, `update` and `discard` are for one thread, the learner's; all else may be called by any.

    With several learners only the first is told of shards, and lets draws and insertions wait for each other; the others
    get the map from it (`shards`, `set_shards`) and draw in step with it.
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
            dial: from a shard's URL to how it is called. May raise TransportError.
            settings: of the contract.
            batch_size: transitions in one update, of all learners together.
            seed: of how batches are split.
            item_bytes: of a transition; 0: few.
            clock: seconds.
        """
        self._dial = dial
        self._batch_size = batch_size
        self._ahead = settings.prefetch + 1
        most = min(_MOST_TOGETHER, 1 + settings.prefetch // 2)  # while those are used, others come
        self._together = max(1, min(most, _MOST_BYTES // max(1, batch_size * item_bytes)))
        self._exponent = settings.importance_exponent
        self._by_buffer = settings.importance_normalizer == "Buffer"
        self._clock = clock
        self._random = random.Random(seed)
        self._rank, self._count = 0, batch_size
        self._changed = threading.Condition()
        self._news = 0  # how often something came that may let draws go on
        self._map = ShardMap()
        self._pace = ShardedRateLimiter(self._map, settings, batch_size)
        self._ledger = SampleCounters()
        self._under_way: deque[RequestGroup] = deque()
        self._ready: deque[BatchShards] = deque()
        self._errands: list[Request] = []  # those that no batch waits for
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
        """A shard says that it is there; to be repeated well within SILENT_SECONDS. See ReplayShard.describe.

        Args:
            name: one shard at a time has it; the pod's.
            incarnation: tells one start from another.
            url: where to dial it.
            mass: sum of its powered priorities.
            counts: the five ReplayCounts, since it first began.
            now: by the clock.
            resumed: the counts that this incarnation began with, if it went on from a checkpoint.
            served_before: this incarnation has worked for another learner.
        """
        known, began_with = ReplayCounts(*counts), ReplayCounts(*resumed)
        with self._changed:
            if self._map.get(name) is None:
                self._pace.forgive((known if served_before else began_with).inserted)
            replaced = self._map.announce(name, incarnation, url, mass, known, now, resumed=began_with)
            if replaced is not None:
                _LOG.info("replay shard %s restarted with %d items", name, known.inserted - known.evicted)
                self._ledger.forgive(replaced)
            self._wake()

    def shards(self) -> list[dict[str, Any]]:
        """The shards that are present, for `set_shards` of the other learners: plain values."""
        with self._changed:
            return self._map.entries()

    def set_shards(self, entries: Iterable[dict[str, Any]]) -> None:
        """What the first learner knows."""
        with self._changed:
            for shard in self._map.merge(entries, self._clock()):
                self._ledger.forgive(shard)
            self._wake()

    def set_share(self, rank: int, size: int) -> None:
        """This is learner `rank` of `size`: it draws batch_size // size, and one more if that leaves some for it."""
        if not 0 <= rank < size:
            raise ValueError(f"there is no learner {rank} of {size}")
        with self._changed:
            self._rank, self._count = rank, self._batch_size // size + (rank < self._batch_size % size)
            self._wake()

    def ready(self) -> bool:
        """Whether there is enough to learn from: see ShardedRateLimiter."""
        with self._changed:
            return self._pace.is_filled()

    def insert_limit(self, name: str) -> int | None:
        """How many insertions the shard of that name may have made by now; None: no limit. See ShardedRateLimiter."""
        with self._changed:
            return self._pace.insert_limit(name)

    def next_batch(self, timeout: float) -> ReplayBatch | None:
        """The next batch: this learner's share, or less if a shard was lost. To be given to `update` or `discard`.

        None if there is none within `timeout` seconds: too little to draw from, or the samplers are to go ahead first. What
        was asked for meanwhile is kept for the next time.
        """
        deadline = self._clock() + timeout
        while True:
            news = self._news
            self._look_after_shards()
            self._ask()
            if self._ready:
                batch = assemble(self._ready.popleft(), self._exponent)
                self._ages.append(float(batch.ages.numpy().mean()))
                return batch
            if self._under_way:
                if not self._under_way[0].wait(self._clock, deadline):
                    return None
                self._join()
            elif not self._wait_for_news(news, deadline):
                return None

    def update(self, batch: ReplayBatch, priorities: Tensor) -> None:
        """Return the raw priorities [B] of `batch` to its shards, with the next message to each.

        Raises:
            ValueError: they are not one for each item, one is negative, infinite or NaN, or the batch is not in use.
        """
        updates = batch.updates(priorities)
        with self._changed:
            self._ledger.take_back(batch.number)
            for (shard, count), update in zip(batch.shards, updates, strict=True):
                if self._map.knows(shard):
                    self._ledger.owe(shard, update)
                else:
                    self._ledger.lost += count

    def discard(self, batch: ReplayBatch) -> None:
        """There will be no priorities for `batch`. Raises ValueError if it is not in use."""
        with self._changed:
            self._ledger.discard(batch.number)

    def stats(self) -> ReplayStats:
        """All figures of one moment."""
        with self._changed:
            held, ledger = self._map.holdings(), self._ledger
            sizes = {shard.name: shard.size for shard in self._map.present}
            return ReplayStats(
                shards=len(sizes),
                size=held.size,
                inserted=held.inserted,
                evicted=held.evicted,
                lost=held.lost,
                restarted=self._map.restarted,
                drawn=ledger.drawn,
                applied=ledger.applied,
                stale=ledger.stale,
                priorities_lost=ledger.lost,
                outstanding=ledger.outstanding,
                sample_age=sum(self._ages) / len(self._ages) if self._ages else 0.0,
                sizes=sizes,
            )

    def get_state(self) -> dict[str, Any]:
        """For the learner's checkpoint: counts, not transitions."""
        with self._changed:
            return {
                "map": self._map.get_state(),
                "pace": self._pace.get_state(),
                "ledger": self._ledger.get_state(),
            }

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue the counts of a lost learner. Shards that live on are found again as they announce themselves; what it
        had drawn and not returned is lost.

        Raises:
            ValueError: this memory is in use already.
        """
        with self._changed:
            if self._ledger.drawn or self._map.present:
                raise ValueError("a replay that is in use cannot be restored")
            self._map.set_state(state["map"])
            self._pace.set_state(state["pace"])
            self._ledger.set_state(state["ledger"])

    def close(self) -> None:
        """Give up what is under way."""
        with self._changed:
            for shard in self._map.present:
                shard.leave()
                self._ledger.forgive(shard)
            for request in self._requests():
                self._ledger.lose(request)
            self._under_way.clear()
            self._errands.clear()
            while self._ready:
                self._ledger.discard(self._ready.popleft().number)
            self._wake()

    def check_valid(self) -> None:
        """Raises AssertionError, saying which, if an invariant does not hold."""
        with self._changed:
            self._map.check_valid()
            self._ledger.check_valid()
            under_way = sum(request.count + request.returned for request in self._requests())
            assert under_way == self._ledger.under_way, f"{under_way} in flight, not {self._ledger.under_way}"
            assert all(map(self._map.knows, self._ledger.creditors)), "priorities for an absent shard"

    def _look_after_shards(self) -> None:
        """Silent shards leave, those that came are asked for a first answer, and errands that are over are settled."""
        now = self._clock()
        with self._changed:
            for shard in self._map.present:
                if self._rank == 0 and now - shard.heard > SILENT_SECONDS:
                    self._leave(shard, f"nothing was heard of it for {SILENT_SECONDS} s")
                elif shard.peer is None:
                    self._meet(shard, now)
            for errand in [errand for errand in self._errands if errand.is_over(now)]:
                self._errands.remove(errand)
                self._settle(errand, now)

    def _meet(self, shard: Shard, now: float) -> None:
        try:
            shard.peer = self._dial(shard.url)
        except TransportError as error:
            self._leave(shard, str(error))
        else:
            self._run_errand(Request(shard, now))

    def _ask(self) -> None:
        """Ask for batches as far ahead as may be, and return the priorities that no request takes along, now or soon."""
        now = self._clock()
        with self._changed:
            waits = self._held > 0  # for requests to come
            while (batches := self._batches_to_ask_for()) and (round_ := self._split(batches, now)):
                self._under_way.append(round_)
                self._pace.on_sampled(batches)
                for request in round_.requests:
                    self._send(request)
                waits = False
            if not waits:
                for shard in self._ledger.creditors:
                    if shard.answers:
                        self._run_errand(Request(shard, now, update=self._ledger.collect(shard)))

    @property
    def _held(self) -> int:
        """Batches that are ready or under way."""
        return len(self._ready) + sum(round_.batches for round_ in self._under_way)

    def _batches_to_ask_for(self) -> int:
        room = self._ahead - self._held
        if self._held and room < self._together:
            return 0
        most = min(room, self._together)
        return most if self._rank > 0 else self._pace.may_draw(most)

    def _split(self, batches: int, now: float) -> RequestGroup | None:
        """Requests for so many batches; None if there is nothing to draw from."""
        shards = [shard for shard in self._map.present if shard.answers and shard.priority_sum > 0]
        if not shards or not self._count:
            return None
        masses = [shard.priority_sum for shard in shards]
        shares = [mass / sum(masses) for mass in masses]
        counts = stratified_counts(masses, self._count * batches, self._random.random())
        requests = [
            Request(shard, now, count, share, self._ledger.collect(shard))
            for shard, count, share in zip(shards, counts, shares, strict=True)
            if count or self._by_buffer  # the least likely item may be where nothing is drawn from
        ]
        total = sum(shard.size for shard in shards)
        return RequestGroup(requests, batches, total, list(zip(shards, shares, strict=True)))

    def _join(self) -> None:
        """Make ready what came of the oldest round under way, whose requests are over."""
        now = self._clock()
        with self._changed:
            round_, parts = self._under_way.popleft(), []
            for request in round_.requests:
                answer = self._settle(request, now)
                if answer is not None and request.count and answer["drawn"].shape[1]:
                    parts.append(ShardSample(request.shard, request.share, answer["items"], answer["drawn"]))
            least = round_.least if self._by_buffer else inf
            for dealt in split_into_batches(parts, round_.batches, self._random.randrange(round_.batches)):
                self._batches += 1
                hand = BatchShards(self._batches, dealt, round_.total, least)
                self._ledger.hand_over(hand.number, hand.size)
                self._ready.append(hand)

    def _settle(self, request: Request, now: float) -> dict[str, Any] | None:
        """Account for a request that is over; its answer, if there is one."""
        shard = request.shard
        try:
            answer = request.answer()
        except TransportError as error:
            self._ledger.lose(request)
            if request.peer is shard.peer:
                self._leave(shard, str(error))
            return None
        drawn = answer["drawn"].shape[1] if request.count else 0
        self._ledger.settle(request, drawn, *answer["updated"])
        shard.observe(ReplayCounts(*answer["counts"]), answer["mass"], answer.get("smallest"))
        if request.peer is shard.peer:
            shard.heard, shard.answered, shard.answers = now, now, True
        return answer

    def _send(self, request: Request) -> None:
        self._ledger.send(request)
        request.send(smallest=self._by_buffer)

    def _run_errand(self, request: Request) -> None:
        self._send(request)
        self._errands.append(request)

    def _requests(self) -> list[Request]:
        return [*self._errands, *(request for round_ in self._under_way for request in round_.requests)]

    def _leave(self, shard: Shard, why: str) -> None:
        _LOG.warning("replay shard %s is left out until it announces itself again: %s", shard.name, why)
        shard.leave()
        self._ledger.forgive(shard)

    def _wake(self) -> None:
        self._news += 1
        self._changed.notify_all()

    def _wait_for_news(self, seen: int, deadline: float) -> bool:
        """False at the deadline."""
        with self._changed:
            left = deadline - self._clock()
            if left <= 0:
                return False
            self._changed.wait_for(lambda: self._news != seen, min(left, _GLANCE if self._errands else left))
            return True
