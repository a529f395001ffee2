"""Keeps a list up to date with a watch, through disconnections, silence and expired versions."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from rltraining.sdk.api import PASSING, Api, ConnectionLost, Json, Query, Refused, Silence
from rltraining.sdk.timing import Patience

PAGE = 500
GONE = 410
LEAST_LIFE = 1.0
"""Seconds. A stream that ends sooner without an event counts as failed, since otherwise it would be
restarted in a loop. If a stream lasts longer, the server works, although a proxy may close silent
connections."""

REFUSALS_BORNE = 5
"""Number of rejections in a row that are retried, because a starting API server may not have loaded
its rights and kinds yet."""

ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]


@dataclass(frozen=True)
class Change:
    """A change of an object."""

    type: ChangeType
    object: Json


@dataclass(frozen=True)
class Update:
    """The result of a list, or of one event of a watch."""

    changes: tuple[Change, ...]
    """Empty after a list without changes. The first update is always yielded."""
    objects: Mapping[str, Json] = field(repr=False)
    """All current objects, by uid."""


@dataclass(frozen=True)
class Listed:
    """All pages of a list."""

    items: list[Json]
    version: str
    """The version from which to watch."""


def list_all(api: Api, path: str, query: Query) -> Listed:
    """Returns all objects. Each contains its kind and apiVersion, like a single object."""
    items: list[Json] = []
    page: dict[str, str | int] = {"limit": PAGE}
    while True:
        found = api.get(path, {**query, **page})
        kind = {
            "apiVersion": found.get("apiVersion"),
            "kind": str(found.get("kind", "")).removesuffix("List"),
        }
        items += [{**kind, **item} for item in found.get("items") or ()]
        metadata = found.get("metadata") or {}
        if not metadata.get("continue"):
            return Listed(items, str(metadata.get("resourceVersion") or ""))
        page["continue"] = metadata["continue"]


class Watched:
    """The objects that a path and a query select.

    `on_error` is called with a sentence while the API server cannot be reached, and with `""`
    afterwards.
    """

    def __init__(self, api: Api, path: str, query: Query) -> None:
        self._api = api
        self._timing = api.timing
        self._path = path
        self._query = query
        self._objects: dict[str, Json] = {}
        self._version = ""
        """The version from which to watch. Empty if a list is needed."""
        self._events = 0
        self._opened = math.inf
        """When the current watch was answered, or infinity."""
        self.on_error: Callable[[str], None] = lambda _: None

    def updates(self, until: float | None = None) -> Iterator[Update]:
        """Yields the list, then changes, until this time (of `timing.clock`) or forever.

        Errors of the first list are raised immediately (Refused, ConnectionLost). Later, requests
        to an API server that is unreachable or returns errors are retried for `timing.patience`
        seconds.
        """
        yield self._list()
        patience, clock = Patience(self._timing), self._timing.clock
        while until is None or clock() < until:
            begun, seen, self._opened = clock(), self._events, math.inf
            try:
                if not self._version:
                    yield self._list()
                yield from self._watch(until)
                if self._events > seen or clock() - begun >= LEAST_LIFE:
                    patience.succeeded()
                else:
                    patience.failed(ConnectionLost("the API server ends each watch immediately"), until)
            except (ConnectionLost, Refused) as error:
                if isinstance(error, Silence) and self._opened < math.inf:
                    continue
                if self._events > seen or clock() - self._opened >= LEAST_LIFE:
                    patience.succeeded()
                self._note(error, patience.failures)
                patience.failed(error, until)

    def _note(self, error: ConnectionLost | Refused, failures: int) -> None:
        """Raises permanent errors, and reports others."""
        if isinstance(error, Refused) and error.code == GONE:
            self._version = ""
            return
        if isinstance(error, Refused) and error.code not in PASSING and failures >= REFUSALS_BORNE:
            raise error
        self.on_error(str(error))

    def _list(self) -> Update:
        listed = list_all(self._api, self._path, self._query)
        before, self._version = self._objects, listed.version
        self._objects = {_uid(item): item for item in listed.items}
        changes = [Change("DELETED", item) for uid, item in before.items() if uid not in self._objects]
        changes += [
            Change("ADDED" if uid not in before else "MODIFIED", item)
            for uid, item in self._objects.items()
            if uid not in before or _version(before[uid]) != _version(item)
        ]
        return Update(tuple(changes), dict(self._objects))

    def _watch(self, until: float | None) -> Iterator[Update]:
        """Runs one watch until it ends."""
        timing = self._timing
        left = math.inf if until is None else max(0.05, until - timing.clock())
        query: dict[str, str | int] = {
            **self._query,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": math.ceil(min(timing.watch, left)),
        }
        with self._api.stream(self._path, query, silence=min(timing.silence, left)) as lines:
            self._opened = timing.clock()
            self.on_error("")
            for line in lines:
                event = _parse(line)
                if event is None:
                    return
                if event["type"] == "ERROR":
                    raise Refused(int(event["object"].get("code") or 500), event["object"])
                self._events += 1
                if (update := self._take(event)) is not None:
                    yield update
                if until is not None and timing.clock() >= until:
                    return

    def _take(self, event: Json) -> Update | None:
        item: Json = event["object"]
        self._version = _version(item) or self._version
        if event["type"] not in ("ADDED", "MODIFIED", "DELETED"):
            return None  # a bookmark
        if event["type"] == "DELETED":
            self._objects.pop(_uid(item), None)
        else:
            self._objects[_uid(item)] = item
        return Update((Change(event["type"], item),), dict(self._objects))


def _parse(line: bytes) -> Json | None:
    """Parses an event. Returns None for a line that was truncated by a broken connection."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and isinstance(event.get("object"), dict) else None


def _uid(item: Json) -> str:
    metadata = item["metadata"]
    return str(metadata.get("uid") or metadata["name"])


def _version(item: Json) -> str:
    return str((item.get("metadata") or {}).get("resourceVersion") or "")
