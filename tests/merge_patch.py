"""Merges patches as an API server does."""

from __future__ import annotations

from typing import Any


def merged(old: Any, patch: Any) -> Any:
    """Merges a patch as in RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result
