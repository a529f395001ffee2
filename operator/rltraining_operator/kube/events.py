"""Writes the Kubernetes Events of jobs, which `kubectl describe` shows, in the background. Repeated
events are counted.

The number of events per job is limited, as in client-go's EventCorrelator, so that neither a job's
own loops nor the reports of its pods fill etcd.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any

from rltraining_api.names import API_VERSION, KIND, MANAGED_BY

from rltraining_operator.cluster import Event, Key
from rltraining_operator.errors import ClusterError, NotFoundError, UnavailableError
from rltraining_operator.kube.api import Api
from rltraining_operator.kube.paths import collection, item
from rltraining_operator.status.bounds import clip

MESSAGE_BYTES_MAX = 1024
"""Size of a message. The API server rejects longer ones."""
REMEMBERED = 4096
BURST, REFILL_SECONDS = 25, 300.0
"""The size of a burst of a job's events, and the seconds until one more is allowed: client-go's
defaults. Repeated events count, too."""
RESERVED = 10
"""Events of a burst that learners' reports and roll-outs cannot use, so that there is always room for the events
of a job's end."""
QUEUE_MAX = 10_000
ATTEMPTS = 3
_Line = tuple[Key, str, Event]


class Bucket:
    """Counts the events that a job may still emit."""

    def __init__(self, now: float) -> None:
        self._tokens, self._then = float(BURST), now

    def take(self, now: float, reserved: int) -> bool:
        """Returns whether one more event is allowed that leaves `reserved` for others."""
        self._tokens = min(self._tokens + (now - self._then) / REFILL_SECONDS, float(BURST))
        self._then = now
        if self._tokens < 1 + reserved:
            return False
        self._tokens -= 1
        return True


class EventWriter:
    """Writes events one after the other. Passes do not wait for it."""

    def __init__(self, api: Api, clock: Callable[[], datetime], host: str) -> None:
        self._api, self._clock, self._host = api, clock, host
        self._queue: asyncio.Queue[_Line] = asyncio.Queue(QUEUE_MAX)
        self._known: OrderedDict[_Line, tuple[str, int]] = OrderedDict()
        """Name and count of recent events."""
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()
        """Buckets of jobs with recent events, by uid."""

    def write(self, key: Key, uid: str, event: Event) -> None:
        """Queues an event, if the job's limit allows it. If ten thousand events are queued, for
        example because the API server has been down for long, the event is only logged."""
        if not self._may_write(uid, event):
            log.debug(
                "%s: event not written, because the job has reached its limit of events: %s: %s",
                key,
                event.reason,
                event.message,
            )
            return
        level = logging.WARNING if event.type == "Warning" else logging.INFO
        log.log(level, "%s: %s: %s", key, event.reason, event.message)
        try:
            self._queue.put_nowait((key, uid, event))
        except asyncio.QueueFull:
            log.warning("%s: event not written, because the queue is full", key)

    def _may_write(self, uid: str, event: Event) -> bool:
        now = time.monotonic()
        bucket = self._buckets.setdefault(uid, Bucket(now))
        self._buckets.move_to_end(uid)
        while len(self._buckets) > REMEMBERED:
            self._buckets.popitem(last=False)
        return bucket.take(now, RESERVED if event.reported else 0)

    async def run(self) -> None:
        """Writes queued events until cancelled."""
        while True:
            line = await self._queue.get()
            for attempt in range(ATTEMPTS):
                try:
                    await self._write(line)
                    break
                except UnavailableError as error:
                    log.debug("event of %s: %s", line[0], error)
                    await asyncio.sleep(2.0**attempt)
                except ClusterError as error:
                    log.debug("event of %s: %s", line[0], error)
                    break

    async def drain(self, seconds: float) -> None:
        """Writes the queued events before the end, for at most `seconds`."""
        with suppress(TimeoutError, ClusterError):
            async with asyncio.timeout(seconds):
                while not self._queue.empty():
                    await self._write(self._queue.get_nowait())

    async def _write(self, line: _Line) -> None:
        key = line[0]
        now = f"{self._clock():%Y-%m-%dT%H:%M:%SZ}"
        if line in self._known:
            name, count = self._known[line]
            try:
                path = item("Event", key.namespace, name)
                await self._api.patch(path, "merge", {"count": count + 1, "lastTimestamp": now})
            except NotFoundError:  # events expire
                del self._known[line]
            else:
                self._remember(line, name, count + 1)
                return
        name = f"{key.name}.{secrets.token_hex(8)}"
        await self._api.post(collection("Event", key.namespace), self._body(line, name, now))
        self._remember(line, name, 1)

    def _body(self, line: _Line, name: str, now: str) -> dict[str, Any]:
        key, uid, event = line
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": key.namespace},
            "involvedObject": {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "namespace": key.namespace,
                "name": key.name,
                "uid": uid,
            },
            "type": event.type,
            "reason": event.reason,
            "message": clip(event.message, MESSAGE_BYTES_MAX),
            "source": {"component": MANAGED_BY, "host": self._host},
            "reportingComponent": MANAGED_BY,
            "reportingInstance": self._host,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }

    def _remember(self, line: _Line, name: str, count: int) -> None:
        self._known[line] = name, count
        self._known.move_to_end(line)
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)


log = logging.getLogger(__name__)
