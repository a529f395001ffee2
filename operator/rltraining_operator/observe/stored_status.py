"""Reads a stored status of any writer. Keeps the valid parts and skips the rest. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from rltraining_api.introspect import dotted
from rltraining_api.status import Status

LOST = "the status cannot be read and is rebuilt"


def read_status(raw: Mapping[str, Any] | None) -> tuple[Status, str]:
    """Returns the status, and a sentence about its invalid parts (empty if there are none).

    Skips invalid fields, and of a list only the invalid items: an invalid field must not discard
    the end of a job.
    """
    try:
        return Status.model_validate(raw or {}, extra="ignore"), ""
    except ValidationError as error:
        details = error.errors(include_url=False)
    if not isinstance(raw, Mapping):
        return Status(), LOST
    paths = ", ".join(sorted({dotted(("status", *found["loc"])) for found in details}))
    sentence = f"parts of the status cannot be read and are rebuilt: {paths}"
    try:
        return Status.model_validate(_without(raw, details), extra="ignore"), sentence
    except ValidationError:
        return Status(), LOST


def _without(raw: Mapping[str, Any], details: list[ErrorDetails]) -> dict[str, Any]:
    """Returns the status without the invalid fields and list items."""
    kept = dict(raw)
    wrong: dict[str, set[int]] = {}
    for found in details:
        key, *rest = found["loc"]
        items = kept.get(str(key))
        if rest and isinstance(rest[0], int) and isinstance(items, list):
            wrong.setdefault(str(key), set()).add(rest[0])
        else:
            kept.pop(str(key), None)
    for key, indices in wrong.items():
        if key in kept:
            kept[key] = [item for index, item in enumerate(kept[key]) if index not in indices]
    return kept
