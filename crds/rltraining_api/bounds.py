"""How large a manifest may be. A few hundred bytes of YAML can stand for gigabytes, and whoever checks manifests of others,
as CI does, must not fall over them."""

from __future__ import annotations

from typing import Any, NamedTuple

from rltraining_api.introspect import dotted

BYTES_MAX = 2**20
"""Of a file: about what etcd stores as one object."""
DEPTH_MAX = 64
"""Lists and objects within each other; a pod template has about a dozen."""
VALUES_MAX = 100_000
"""Values of a job, with what aliases stand for written out."""
ALIASED_MAX = 10_000
"""Values that the aliases of a document stand for together. API servers have had such a bound since CVE-2019-11253."""
PROBLEMS_MAX = 20
"""Sentences about one job; the rest are counted."""
SENTENCE_MAX = 500
"""Characters of one of them."""
PATH_MAX = 100

TOO_LARGE = f"is larger than {BYTES_MAX // 2**20} MiB, which is what an API server stores: leave out what is not needed"
TOO_DEEP = f"lists and objects are nested more than {DEPTH_MAX} levels deep"


class _Place(NamedTuple):
    """A value and where it is."""

    value: Any
    depth: int
    """Of lists and objects around it."""
    key: str | int = ""
    parent: _Place | None = None

    @property
    def path(self) -> tuple[str | int, ...]:
        return () if self.parent is None else (*self.parent.path, self.key)

    @property
    def is_within_itself(self) -> bool:
        above = self.parent
        while above is not None and above.value is not self.value:
            above = above.parent
        return above is not None


def beyond_bounds(data: Any) -> str | None:
    """What is too large or too deep about a manifest's data, as a sentence; None for what is neither, or holds itself."""
    to_do, count = [_Place(data, 0)], 0
    while to_do:
        place = to_do.pop()
        count += 1
        if count > VALUES_MAX:
            return f"holds more than {VALUES_MAX:,} values"
        if not isinstance(place.value, dict | list | tuple):
            continue
        if place.depth >= DEPTH_MAX:
            if place.is_within_itself:
                continue
            return f"{shortened(dotted(place.path), PATH_MAX)}: {TOO_DEEP}"
        items = place.value.items() if isinstance(place.value, dict) else enumerate(place.value)
        below = [_Place(value, place.depth + 1, key, place) for key, value in items]
        to_do += reversed(below)
    return None


def shortened(text: str, length: int) -> str:
    """Text of at most this many characters."""
    return text if len(text) <= length else f"{text[: length - 3]}..."
