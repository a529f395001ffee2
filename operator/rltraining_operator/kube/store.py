"""Caches all jobs and their children as the API server returned them last, so that a pass sends no
reads.

Events of a watch and answers to the operator's own writes update the same maps; the newer
resourceVersion wins. A pass therefore sees the writes of previous passes, even when the watch lags
behind. Belongs to one event loop.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from rltraining_api.names import ANNOTATION_ENCRYPTION, ANNOTATION_TEMPLATE, KIND, LABEL_JOB_NAME

from rltraining_operator.cluster import Key, Manifest
from rltraining_operator.kube.paths import PLACES, UNLISTED
from rltraining_operator.kube.rivals import status_writers

Json = dict[str, Any]

TOMBSTONE_SECONDS = 300.0
_POD_METADATA = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "labels",
    "creationTimestamp",
    "deletionTimestamp",
    "ownerReferences",
)
_POD_ANNOTATIONS = (ANNOTATION_TEMPLATE, ANNOTATION_ENCRYPTION)
_POD_STATUS = (
    "phase",
    "reason",
    "message",
    "podIP",
    "conditions",
    "containerStatuses",
    "initContainerStatuses",
)


class Store:
    """Caches jobs, and children by job, kind and name."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._jobs: dict[Key, Json] = {}
        self._children: dict[Key, dict[tuple[str, str], Json]] = {}
        self._writers: dict[Key, Mapping[str, str]] = {}
        self._clock = clock
        self._gone: OrderedDict[str, tuple[float, int]] = OrderedDict()
        """Time and version of recent deletions, by uid. An answer that was in transit at the
        deletion must not restore the object. A watch also reports a deletion if an object loses its
        label, so a later version is accepted."""

    def job(self, key: Key) -> Manifest | None:
        """Returns the newest known version of the job, or None."""
        return self._jobs.get(key)

    def jobs(self) -> Mapping[Key, Manifest]:
        """Returns all jobs."""
        return self._jobs

    def status_writers(self, key: Key) -> Mapping[str, str]:
        """Returns the operators that have written the status of the job, with the time of their last
        write. All that is kept of the managed fields of jobs."""
        return self._writers.get(key, {})

    def children(self, key: Key) -> list[Json]:
        """Returns all objects with the job's label, regardless of their owner."""
        return list(self._children.get(key, {}).values())

    def child(self, key: Key, kind: str, name: str) -> Json | None:
        """Returns one child, or None."""
        return self._children.get(key, {}).get((kind, name))

    def put(self, kind: str, found: Json) -> Key | None:
        """Stores an object. Returns its job, or None if the object is not newer than the cached
        one."""
        metadata = found["metadata"]
        key = key_of(kind, metadata)
        if key is None or self._is_buried(metadata) or not self._newer(self._find(kind, key, found), found):
            return None
        if kind == KIND:
            self._writers[key] = status_writers(metadata)
            metadata.pop("managedFields", None)
            self._jobs[key] = found
        else:
            self._children.setdefault(key, {})[kind, metadata["name"]] = _slim(kind, found)
        return key

    def remove(self, kind: str, found: Manifest) -> Key | None:
        """Removes a deleted object. Returns its job, or None if the cached object is another
        one."""
        metadata = found["metadata"]
        self._bury(metadata)
        key = key_of(kind, metadata)
        if key is None:
            return None
        known = self._find(kind, key, found)
        if known is not None and known["metadata"]["uid"] != metadata["uid"]:
            return None
        self.forget(key, kind, metadata["name"])
        return key

    def forget(self, key: Key, kind: str, name: str) -> None:
        """Drops an object from the cache, so that the next pass checks whether it still exists."""
        if kind == KIND:
            self._jobs.pop(key, None)
            self._writers.pop(key, None)
            gone = [it for it in self._children.get(key, {}) if it[0] in UNLISTED]
            for its, child in gone:  # no watch and no list reports their deletion
                self.forget(key, its, child)
        elif children := self._children.get(key):
            children.pop((kind, name), None)
            if not children:
                del self._children[key]

    def missing(
        self, kind: str, seen: Iterable[str], version: str, namespace: str = ""
    ) -> Iterator[Manifest]:
        """Yields cached objects that are missing from a list at `version` (`seen` contains its
        uids). They are gone."""
        there, at = set(seen), int(version or 0)
        for known in list(self._all(kind)):
            metadata = known["metadata"]
            if metadata["uid"] in there or int(metadata["resourceVersion"]) > at:
                continue
            if not namespace or metadata["namespace"] == namespace:
                yield known

    def _all(self, kind: str) -> Iterator[Json]:
        if kind == KIND:
            yield from self._jobs.values()
            return
        for children in self._children.values():
            yield from (child for (its, _), child in children.items() if its == kind)

    def _find(self, kind: str, key: Key, found: Manifest) -> Json | None:
        if kind == KIND:
            return self._jobs.get(key)
        return self.child(key, kind, found["metadata"]["name"])

    def _newer(self, known: Json | None, found: Json) -> bool:
        if known is None:
            return True
        return int(found["metadata"]["resourceVersion"]) > int(known["metadata"]["resourceVersion"])

    def _bury(self, metadata: Mapping[str, Any]) -> None:
        now = self._clock()
        self._gone[metadata["uid"]] = now, int(metadata["resourceVersion"])
        self._gone.move_to_end(metadata["uid"])
        while next(iter(self._gone.values()))[0] < now - TOMBSTONE_SECONDS:
            self._gone.popitem(last=False)

    def _is_buried(self, metadata: Mapping[str, Any]) -> bool:
        _, version = self._gone.get(metadata["uid"], (0.0, -1))
        found = int(metadata["resourceVersion"])
        return found < version or (found == version and "deletionTimestamp" in metadata)


def key_of(kind: str, metadata: Mapping[str, Any]) -> Key | None:
    """Returns the job that an object is or belongs to, by its owner or else by its label. Labels
    can be removed."""
    if kind == KIND:
        return Key(metadata["namespace"], metadata["name"])
    owners = (owner["name"] for owner in metadata.get("ownerReferences") or () if owner.get("kind") == KIND)
    name = next(owners, None) or (metadata.get("labels") or {}).get(LABEL_JOB_NAME)
    return Key(metadata["namespace"], name) if name else None


def _slim(kind: str, found: Json) -> Json:
    """Removes the fields that passes do not use. The full objects of ten thousand pods would fill
    the memory."""
    if kind == "Pod":
        metadata, status = found["metadata"], found.get("status") or {}
        kept = _some(metadata, _POD_METADATA)
        kept["annotations"] = _some(metadata.get("annotations") or {}, _POD_ANNOTATIONS)
        return {"kind": "Pod", "metadata": kept, "status": _some(status, _POD_STATUS)}
    found["metadata"].pop("managedFields", None)
    # Items of a list lack both fields. Without them no child equals its desired state, and each
    # pass patches all.
    return {"apiVersion": PLACES[kind][0], "kind": kind} | found


def _some(found: Mapping[str, Any], names: Iterable[str]) -> Json:
    return {name: found[name] for name in names if name in found}
