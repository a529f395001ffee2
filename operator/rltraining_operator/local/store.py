"""Stores the objects of a local cluster in memory, with the fields that an API server adds."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

Json = Mapping[str, Any]
Object = dict[str, Any]


class LocalStore:
    """Objects by kind and name. Objects are copied on each access, so that none is shared with a
    caller."""

    def __init__(self) -> None:
        self._objects: dict[tuple[str, str], Object] = {}

    def get(self, kind: str, name: str) -> Object | None:
        """Returns a copy of an object, or None."""
        return copy.deepcopy(self._objects.get((kind, name)))

    def of_kind(self, *kinds: str) -> Iterator[Object]:
        """Returns copies of all objects of these kinds, or of all kinds if none is given."""
        found = [known for (kind, _), known in self._objects.items() if not kinds or kind in kinds]
        return map(copy.deepcopy, found)

    def create(self, manifest: Json) -> bool:
        """Adds an object. Returns False if an object of that name exists."""
        key = (manifest["kind"], manifest["metadata"]["name"])
        if key in self._objects:
            return False
        created = copy.deepcopy(dict(manifest))
        created["metadata"] = dict(created["metadata"]) | {
            "uid": str(uuid.uuid4()),
            "creationTimestamp": datetime.now(UTC).isoformat(),
            "generation": 1,
        }
        self._objects[key] = created
        return True

    def merge(self, kind: str, name: str, patch: Json) -> bool:
        """Merges fields into an object (RFC 7396) and increments its generation if the spec
        changes. Returns whether anything changed."""
        old = self._objects[kind, name]
        new: Object = merge_patch(old, patch)
        if new == old:
            return False
        if new.get("spec") != old.get("spec"):
            new["metadata"] = new["metadata"] | {"generation": old["metadata"]["generation"] + 1}
        self._objects[kind, name] = new
        return True

    def replace_status(self, kind: str, name: str, status: Json) -> None:
        """Replaces the status of an object."""
        self._objects[kind, name] = self._objects[kind, name] | {"status": copy.deepcopy(dict(status))}

    def remove(self, kind: str, name: str) -> None:
        """Removes an object, if it exists."""
        self._objects.pop((kind, name), None)


def merge_patch(target: Any, patch: Any) -> Any:
    """Applies a merge patch (RFC 7396): objects are merged, null deletes, any other value
    replaces."""
    if not isinstance(patch, Mapping):
        return copy.deepcopy(patch)
    merged = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged
