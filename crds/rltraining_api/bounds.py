"""Bounds the size of a manifest. A few hundred bytes of YAML can expand to gigabytes, and a program that checks
untrusted manifests, such as CI, must survive them."""

from __future__ import annotations

from typing import Any, NamedTuple

from rltraining_api.introspect import dotted

BYTES_MAX = 2**20
"""Size of a file: about the largest object that etcd stores."""
DEPTH_MAX = 64
"""Levels of nested lists and objects; a pod template has about a dozen."""
VALUES_MAX = 100_000
"""Values of a job, and of all documents of a file together, after alias expansion."""
ALIASED_MAX = 10_000
"""Values that all aliases of a document expand to. API servers have had such a bound since CVE-2019-11253."""
PROBLEMS_MAX = 20
"""Problems reported for one job; the rest are counted."""
SENTENCE_MAX = 500
"""Characters of one reported problem."""
PATH_MAX = 100

TOO_LARGE = f"is larger than {BYTES_MAX // 2**20} MiB, the limit of an API server: remove unused content"
TOO_DEEP = f"lists and objects are nested more than {DEPTH_MAX} levels deep"


class _Node(NamedTuple):
    """A value and its location."""

    value: Any
    depth: int
    """Number of enclosing lists and objects."""
    key: str | int = ""
    parent: _Node | None = None

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
    """Describes why a manifest's data is too large or too deep. Returns None if it is neither, or if it contains
    itself."""
    to_do, count = [_Node(data, 0)], 0
    while to_do:
        node = to_do.pop()
        count += 1
        if count > VALUES_MAX:
            return f"holds more than {VALUES_MAX:,} values"
        if not isinstance(node.value, dict | list | tuple):
            continue
        if node.depth >= DEPTH_MAX:
            if node.is_within_itself:
                continue
            return f"{shortened(dotted(node.path), PATH_MAX)}: {TOO_DEEP}"
        items = node.value.items() if isinstance(node.value, dict) else enumerate(node.value)
        below = [_Node(value, node.depth + 1, key, node) for key, value in items]
        to_do += reversed(below)
    return None


def shortened(text: str, length: int) -> str:
    """Truncates text to at most `length` characters."""
    return text if len(text) <= length else f"{text[: length - 3]}..."
