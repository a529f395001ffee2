"""The objects of a local cluster, in memory, with what an API server adds to them."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

Json = Mapping[str, Any]
Object = dict[str, Any]


class Store:
    """Objects by kind and name. What goes in and out is copied: nobody shares an object with the store."""

    def __init__(self) -> None:
        self._objects: dict[tuple[str, str], Object] = {}

    def get(self, kind: str, name: str) -> Object | None:
        """A copy of an object."""
        return copy.deepcopy(self._objects.get((kind, name)))

    def of_kind(self, *kinds: str) -> Iterator[Object]:
        """Copies of all objects of these kinds; of all kinds when none is named."""
        found = [known for (kind, _), known in self._objects.items() if not kinds or kind in kinds]
        return map(copy.deepcopy, found)

    def create(self, manifest: Json) -> bool:
        """Add an object; False when there is one of that name."""
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
        """Merge fields into an object (RFC 7396), counting generations of its spec; whether anything changed."""
        old = self._objects[kind, name]
        new: Object = merge_patch(old, patch)
        if new == old:
            return False
        if new.get("spec") != old.get("spec"):
            new["metadata"] = new["metadata"] | {"generation": old["metadata"]["generation"] + 1}
        self._objects[kind, name] = new
        return True

    def replace_status(self, kind: str, name: str, status: Json) -> None:
        """Put a status in the place of the old one."""
        self._objects[kind, name] = self._objects[kind, name] | {"status": copy.deepcopy(dict(status))}

    def remove(self, kind: str, name: str) -> None:
        """Forget an object; one that is gone is fine."""
        self._objects.pop((kind, name), None)


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7396: objects are merged, null deletes, anything else replaces."""
    if not isinstance(patch, Mapping):
        return copy.deepcopy(patch)
    merged = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged
