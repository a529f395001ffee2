"""Runs a queue of jobs, with a pass for each job that needs one, and a periodic resync of all
jobs."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from rltraining_operator.cluster import Cluster, Key
from rltraining_operator.errors import ClusterError
from rltraining_operator.queue import KeyedQueue
from rltraining_operator.reconcile import Clock, reconcile
from rltraining_operator.settings import Settings

RESYNC_RETRY_MAX_SECONDS = 15.0
PASS_SECONDS_MAX = 120.0
"""A pass that takes longer is cancelled and retried, so that it cannot block a worker forever."""

log = logging.getLogger(__name__)


class Meter:
    """Receives measurements of the work. This one drops them."""

    def waited(self, seconds: float) -> None:
        """Records how long a job has waited for its pass."""

    def passed(self, seconds: float, error: BaseException | None) -> None:
        """Records the end of a pass."""

    def request(self, verb: str, resource: str, code: str, seconds: float) -> None:
        """Records the end of a request to the API server."""


def utc_now() -> datetime:
    """Returns the current time, as plans use it."""
    return datetime.now(UTC)


async def first_of(*works: Coroutine[Any, Any, Any]) -> None:
    """Waits until one of them is done and cancels the others."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        await cancel(tasks)


async def cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancels tasks, and returns when all have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class Engine:
    """Reconciles every job of a cluster.

    The watch of the cluster calls `mark(key)` when a job or one of its children has changed, for
    any change. The resync finds changes that no watch reports.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        settings: Settings | None = None,
        workers: int = 4,
        resync_seconds: float = 60.0,
        clock: Clock = utc_now,
        spacing_seconds: float = 0.0,
        meter: Meter | None = None,
    ) -> None:
        self._cluster = cluster
        self._settings = settings or Settings()
        self._clock = clock
        self._resync_seconds = resync_seconds
        self._meter = meter or Meter()
        self._queue: KeyedQueue[Key] = KeyedQueue(
            self._pass,
            workers=workers,
            spacing_seconds=spacing_seconds,
            group=lambda key: key.namespace,
            waited=self._meter.waited,
        )
        self._stopped = asyncio.Event()
        self._missed = asyncio.Event()

    def mark(self, key: Key) -> None:
        """Enqueues a job that has changed. Must be called in the engine's event loop."""
        self._queue.add(key)

    def resync(self) -> None:
        """Enqueues all jobs now, because changes may have been missed. Must be called in the
        engine's event loop."""
        self._missed.set()

    @property
    def depth(self) -> int:
        """The number of jobs that wait for a pass."""
        return self._queue.depth

    async def run(self) -> None:
        """Works until `stop` is called. Jobs and their pods continue without the engine."""
        await first_of(self._queue.run(), self._resync(), self._stopped.wait())

    def stop(self) -> None:
        """Lets `run` return. Cancels passes in progress, which is safe."""
        self._stopped.set()

    async def _pass(self, key: Key) -> float | None:
        began = time.monotonic()
        try:
            async with asyncio.timeout(PASS_SECONDS_MAX):
                after = await reconcile(self._cluster, key, self._clock, self._settings)
        except Exception as error:
            self._meter.passed(time.monotonic() - began, error)
            raise
        self._meter.passed(time.monotonic() - began, None)
        return after

    async def _resync(self) -> None:
        errors = 0
        while True:
            self._missed.clear()
            try:
                for key in await self._cluster.keys():
                    self._queue.add(key)
                errors = 0
            except ClusterError as error:
                log.warning("cannot list jobs: %s", error)
                errors += 1
            soon = min(2.0 ** (errors - 1), RESYNC_RETRY_MAX_SECONDS)
            pause = min(soon, self._resync_seconds) if errors else self._resync_seconds
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._missed.wait()
