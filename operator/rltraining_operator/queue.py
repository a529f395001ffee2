"""Queues keys: each key at most once, one worker per key at a time, many keys in parallel, back-off
after errors."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from rltraining_operator.errors import ClusterError

K = TypeVar("K", bound=Hashable)
Work = Callable[[K], Awaitable[float | None]]
"""Does the work of a key. Returns after how many seconds to repeat the work, or None to wait until
the key is added."""

ENDED_MAX = 4096

log = logging.getLogger(__name__)


class RoundRobin(asyncio.Queue[K]):
    """Returns keys of different groups in turn, so that many keys of one group do not delay other groups."""

    def __init__(self, group: Callable[[K], Hashable]) -> None:
        self._group = group
        super().__init__()

    def _init(self, maxsize: int) -> None:
        self._groups: dict[Hashable, deque[K]] = {}
        """The waiting keys of each group that has some. The first group is next."""

    def _put(self, key: K) -> None:
        self._groups.setdefault(self._group(key), deque()).append(key)

    def _get(self) -> K:
        group = next(iter(self._groups))
        keys = self._groups.pop(group)
        key = keys.popleft()
        if keys:
            self._groups[group] = keys
        return key

    def qsize(self) -> int:
        return sum(map(len, self._groups.values()))

    def empty(self) -> bool:
        return not self._groups


class KeyedQueue(Generic[K]):
    """Runs `work(key)` for every added key.

    A key that is added while it waits is processed once. A key that is added while it is processed
    is processed once more afterwards. If `work` raises, the key is retried after `backoff_seconds *
    2^(errors-1)`, at most `backoff_max_seconds`. It is not retried sooner, however often it is
    added, and does not block other keys. Runs of the same key are at least `spacing_seconds` apart.
    Workers take keys of different groups in turn; `group` returns the group of a key. `waited`
    receives the seconds for which a key has waited for its worker. Belongs to one event loop and is
    not thread-safe.
    """

    def __init__(
        self,
        work: Work[K],
        *,
        workers: int,
        backoff_seconds: float = 0.1,
        backoff_max_seconds: float = 10.0,
        spacing_seconds: float = 0.0,
        group: Callable[[K], Hashable] = lambda key: None,
        waited: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        self._work = work
        self._workers = workers
        self._waited = waited
        self._spacing = spacing_seconds
        self._ended: dict[K, float] = {}
        """When each key was last processed. Times older than the spacing are not needed."""
        self._backoff = (backoff_seconds, backoff_max_seconds)
        self._ready = RoundRobin(group)
        self._waiting: dict[K, float] = {}
        """Keys in `_ready`, and since when they wait while there are workers."""
        self._running: set[K] = set()
        self._again: set[K] = set()
        """Running keys that were added meanwhile."""
        self._errors: dict[K, int] = {}
        self._timers: dict[K, asyncio.TimerHandle] = {}

    def add(self, key: K) -> None:
        """Processes the key as soon as a worker is free or, after an error, after its back-off."""
        if key in self._running:
            self._again.add(key)
        elif key not in self._errors or key not in self._timers:
            rest = self._ended.get(key, float("-inf")) + self._spacing - time.monotonic()
            if rest > 0:
                self.add_after(key, rest)
            else:
                self._put(key)

    def add_after(self, key: K, seconds: float) -> None:
        """Processes the key after this many seconds, unless it is processed before. The earliest of
        several times counts."""
        loop = asyncio.get_running_loop()
        when = loop.time() + seconds
        if (timer := self._timers.get(key)) is not None and timer.when() <= when:
            return
        self._cancel_timer(key)
        self._timers[key] = loop.call_at(when, self._put, key)

    @property
    def depth(self) -> int:
        """The number of keys that wait for a worker."""
        return len(self._waiting)

    async def run(self) -> None:
        """Works until cancelled. The waiting time of keys that were added before starts now."""
        self._waiting = dict.fromkeys(self._waiting, time.monotonic())
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._workers):
                    group.create_task(self._run_worker())
        finally:
            for key in list(self._timers):
                self._cancel_timer(key)

    async def _run_worker(self) -> None:
        while True:
            key = await self._ready.get()
            self._waited(time.monotonic() - self._waiting.pop(key))
            self._running.add(key)
            try:
                await self._run_once(key)
            finally:
                self._running.discard(key)
            self._rest(key)
            if key in self._again:
                self._again.discard(key)
                self.add(key)

    async def _run_once(self, key: K) -> None:
        try:
            after = await self._work(key)
        except Exception as error:  # any error affects only this key
            count = self._errors[key] = self._errors.get(key, 0) + 1
            first, most = self._backoff
            after = min(first * 2.0 ** min(count - 1, 60), most)
            bug = None if isinstance(error, (ClusterError, TimeoutError)) else error
            log.warning(
                "%s: %s (error %d in a row; again in %.1f s)",
                key,
                error or repr(error),
                count,
                after,
                exc_info=bug,
            )
        else:
            self._errors.pop(key, None)
        if after is not None:
            self.add_after(key, after)

    def _rest(self, key: K) -> None:
        """Starts the spacing of a key."""
        now = time.monotonic()
        if self._spacing and len(self._ended) > ENDED_MAX:
            self._ended = {key: when for key, when in self._ended.items() if when + self._spacing > now}
        if self._spacing:
            self._ended[key] = now

    def _put(self, key: K) -> None:
        self._cancel_timer(key)
        if key in self._running:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting[key] = time.monotonic()
            self._ready.put_nowait(key)

    def _cancel_timer(self, key: K) -> None:
        if timer := self._timers.pop(key, None):
            timer.cancel()
