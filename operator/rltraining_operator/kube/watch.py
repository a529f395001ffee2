"""Watches the pods of all jobs: lists them once, then applies each change to the cache and marks
its job.

kopf watches jobs. Pods are far more numerous, and kopf keeps a queue, a task and memory for each
object. After the history has expired, kopf does not report the objects that were deleted meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from rltraining_operator.cluster import Key
from rltraining_operator.errors import ClusterError
from rltraining_operator.kube.api import Api, Gone
from rltraining_operator.kube.paths import SELECTOR, collection
from rltraining_operator.kube.store import Store

STREAM_SECONDS = 300
"""Seconds after which the server ends a stream and the client reconnects, so that no connection is
permanent."""
SILENCE_SECONDS = 80.0
"""Seconds without an event after which a stream is broken, since the server sends bookmarks every
minute."""
BACKOFF_SECONDS, BACKOFF_MAX_SECONDS = 0.1, 5.0
SHORT_SECONDS = 0.5
RELIST_AFTER_ERRORS = 3
"""Number of failed reconnects in a row after which the objects are listed again, because the
version may be the cause."""

log = logging.getLogger(__name__)


class Watch:
    """Keeps the cached pods of jobs, in one namespace or all, equal to the pods on the server."""

    def __init__(self, api: Api, store: Store, mark: Callable[[Key], None], namespace: str = "") -> None:
        self._api, self._store, self._mark = api, store, mark
        self._namespace, self._path = namespace, collection("Pod", namespace)
        self._version = ""
        """The version of the last received event. Empty if the objects must be listed."""
        self.synced = asyncio.Event()
        """Set when the first list is complete."""
        self.last_sign = time.monotonic()
        """Time of the last answer or failed request, in monotonic seconds. While it advances, this watch is alive."""
        self.last_event = self.last_sign
        """Time of the last event or bookmark of a stream, in monotonic seconds. While it advances, changes arrive."""

    async def run(self) -> None:
        """Watches until cancelled. Recovers from all errors of the server."""
        errors = 0
        while True:
            try:
                if not self._version:
                    await self._list()
                    self.synced.set()
                began = time.monotonic()
                await self._follow()
                if time.monotonic() - began < SHORT_SECONDS:
                    # A server that shuts down ends every stream immediately.
                    await asyncio.sleep(SHORT_SECONDS)
                errors = 0
                continue
            except Gone:
                log.info("%s: the watch has expired, listing again", self._path)
                self._version = ""
            except ClusterError as error:
                log.warning("%s: %s", self._path, error)
            errors += 1
            if errors >= RELIST_AFTER_ERRORS:
                self._version = ""
            self.last_sign = time.monotonic()
            await asyncio.sleep(min(BACKOFF_SECONDS * 2.0 ** min(errors, 16), BACKOFF_MAX_SECONDS))

    async def _list(self) -> None:
        """Lists all objects. Removes cached objects that are missing from the list."""
        seen: set[str] = set()
        version = ""
        async for page in self._api.pages(self._path, SELECTOR):
            self.last_sign = time.monotonic()
            version = version or page["metadata"]["resourceVersion"]
            for found in page["items"]:
                seen.add(found["metadata"]["uid"])
                self._note(self._store.put("Pod", found))
            await asyncio.sleep(0)  # a large list must not block other tasks
        for lost in self._store.missing("Pod", seen, version, self._namespace):
            self._note(self._store.remove("Pod", lost))
        self._version = version

    async def _follow(self) -> None:
        """Applies the events of one stream until it ends."""
        query = {
            "watch": "1",
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(STREAM_SECONDS),
            "labelSelector": SELECTOR,
        }
        async for event in self._api.stream(self._path, query, silence_seconds=SILENCE_SECONDS):
            self.last_sign = self.last_event = time.monotonic()
            found = event["object"]
            self._version = found["metadata"]["resourceVersion"]
            match event["type"]:
                case "ADDED" | "MODIFIED":
                    self._note(self._store.put("Pod", found))
                case "DELETED":
                    self._note(self._store.remove("Pod", found))

    def _note(self, key: Key | None) -> None:
        if key is not None:
            self._mark(key)
