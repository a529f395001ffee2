"""Describes validation errors in sentences: the field, the error, and a valid value."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from rltraining_api import patterns
from rltraining_api.base import ApiModel, OneOf
from rltraining_api.bounds import PROBLEMS_MAX
from rltraining_api.introspect import (
    Path,
    allows_null,
    child_model,
    dotted,
    field_at,
    fields_by_key,
    model_at,
)


def explain(error: ValidationError, model: type[ApiModel], written: Any = None) -> list[str]:
    """Returns one sentence per error, which begins with the field's path in the manifest. Only the
    first errors are listed, and the rest are counted.

    `written`: the manifest. If its algorithm has an unknown field of the spec, that field is suggested.
    """
    found = error.errors(include_url=False)
    shown = [
        _line(details, model, written) for details in found[:PROBLEMS_MAX] if not _follows(details, found)
    ]
    more = len(found) - PROBLEMS_MAX
    return shown if more <= 0 else [*shown, f"and {more} more {'problem' if more == 1 else 'problems'}"]


def empty_fields(data: Any, model: type[ApiModel], path: tuple[str | int, ...] = ()) -> list[str]:
    """Returns one sentence per field whose value is null although null has no meaning there."""
    if isinstance(data, list):
        return [line for i, item in enumerate(data) for line in empty_fields(item, model, (*path, i))]
    if not isinstance(data, Mapping) or model.model_config.get("extra") == "ignore":
        return []  # metadata is Kubernetes' own, and holds nulls
    lines = []
    for key, field in fields_by_key(model).items():
        if key not in data:
            continue
        child, here = child_model(field.annotation), (*path, key)
        if data[key] is None and not allows_null(field):
            remedy = "write {} for its defaults" if child and _has_defaults(child) else "give a value"
            instead = "" if field.is_required() else ", or leave it out"
            lines.append(f"{dotted(here)}: is empty: {remedy}{instead}")
        elif child is not None:
            lines += empty_fields(data[key], child, here)
    return lines


def _has_defaults(model: type[BaseModel]) -> bool:
    """Whether {} is one."""
    try:
        model.model_validate({})
    except ValidationError:
        return False
    return True


def suggestion(key: str, known: Iterable[str], *, list_all: bool = False) -> str:
    """Suggests a known key for an unknown one. Lists all known keys if none is close, or with `list_all`."""
    candidates = {name.lower().replace("_", ""): name for name in known}
    close = difflib.get_close_matches(key.lower().replace("_", ""), candidates, n=1, cutoff=0.6)
    listed = ", ".join(candidates.values())
    if not close:
        return f"known are {listed}"
    return f"did you mean {candidates[close[0]]}?" + (f" Known are {listed}" if list_all else "")


def _follows(details: ErrorDetails, found: Iterable[ErrorDetails]) -> bool:
    """Returns whether the error only reports a list as too short because its invalid items are
    missing."""
    depth = len(details["loc"])
    return details["type"] == "too_short" and any(
        other["loc"][:depth] == details["loc"] and len(other["loc"]) > depth for other in found
    )


def _line(details: ErrorDetails, model: type[ApiModel], written: Any) -> str:
    where = dotted(details["loc"])
    sentence = _sentence(details, model, written)
    return f"{where}: {sentence}" if where else sentence


def _sentence(details: ErrorDetails, model: type[ApiModel], written: Any) -> str:
    kind, context = details["type"], details.get("ctx", {})
    if kind == "extra_forbidden":
        return _unknown(details["loc"], model, written)
    if kind in _WITHOUT_VALUE:
        return _WITHOUT_VALUE[kind](context)
    template = _WITH_VALUE.get(kind)
    expected = template(context) if template else details["msg"]
    return f"{expected}, got {_shown(details['input'])}"


def _unknown(path: Path, model: type[ApiModel], written: Any) -> str:
    if (deeper := _deeper(path, model, written)) is not None:
        return f"is not a known field: did you mean {dotted(deeper)}?"
    owner = model_at(model, path[:-1])
    known = fields_by_key(owner) if owner else {}
    if owner is None or not known:
        return "is not a known field"
    # A key beside choices, such as algorithms, may be meant as another choice than the closest one.
    return f"is not a known field: {suggestion(str(path[-1]), known, list_all=issubclass(owner, OneOf))}"


def _deeper(path: Path, model: type[ApiModel], written: Any) -> Path | None:
    """Returns the path of a field of the manifest's algorithm or environment that was written as a field of the spec or
    of `spec.algorithm`."""
    *owner, key = path
    spec = written.get("spec") if isinstance(written, Mapping) else None
    if owner not in (["spec"], ["spec", "algorithm"]) or not isinstance(spec, Mapping):
        return None
    chosen = spec.get("algorithm")
    algorithms = chosen if isinstance(chosen, Mapping) else ()
    places = [*(("spec", "algorithm", name) for name in algorithms), ("spec", "environment")]
    return next(((*place, key) for place in places if field_at(model, (*place, key))), None)


Wording = Callable[[Mapping[str, Any]], str]

_WITHOUT_VALUE: dict[str, Wording] = {
    "contract": lambda context: str(context["sentence"]),
    "missing": lambda _: "is required",
    "too_short": lambda context: f"must have at least {_items(context['min_length'])}",
    "too_long": lambda context: f"must have at most {_items(context['max_length'])}",
    "string_too_long": lambda context: f"must have at most {context['max_length']} characters",
    "string_too_short": lambda _: "must not be empty",
    "finite_number": lambda _: "must be a finite number",
}

_WITH_VALUE: dict[str, Wording] = {
    "greater_than_equal": lambda context: f"must be at least {_shown(context['ge'])}",
    "greater_than": lambda context: f"must be more than {_shown(context['gt'])}",
    "less_than_equal": lambda context: f"must be at most {_shown(context['le'])}",
    "less_than": lambda context: f"must be less than {_shown(context['lt'])}",
    "int_type": lambda _: "must be an integer",
    "int_from_float": lambda _: "must be an integer",
    "float_type": lambda _: "must be a number",
    "bool_type": lambda _: "must be true or false",
    "string_type": lambda _: "must be text",
    "dict_type": lambda _: "must be an object",
    "model_type": lambda _: "must be an object",
    "tuple_type": lambda _: "must be a list",
    "literal_error": lambda context: f"must be {context['expected'].replace(chr(39), '')}",
    "string_pattern_mismatch": lambda context: patterns.MEANINGS.get(
        context["pattern"], f"must match {context['pattern']}"
    ),
}


def _items(count: int) -> str:
    return f"{count} item" if count == 1 else f"{count} items"


def _shown(value: Any) -> str:
    """Returns a value as in a manifest, truncated."""
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, float) and value.is_integer():
        return f"{value:.0f}" if abs(value) < 1e9 else f"{value:g}"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."
