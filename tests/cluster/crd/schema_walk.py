"""Every field of the CRD's spec, and a manifest in which a given field has a given value."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rltraining_api.crd import crd
from rltraining_api.introspect import dotted
from rltraining_api.names import API_VERSION, KIND
from sample_texts import TEXTS

Json = dict[str, Any]
Path = tuple[str | int, ...]
"""Keys from the top of the object; 0 stands for any item of a list."""

ROOT: Json = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]

SHORTEST: Json = {
    "algorithm": {"impala": {}},
    "environment": {"id": "CartPole-v1"},
    "stop": {"environmentSteps": 1_000_000},
}
"""A spec with nothing in it that may be left out."""
DEDICATED: Json = SHORTEST | {"algorithm": {"dqnApex": {"replay": {"placement": "Dedicated"}}}}
"""A spec that may have replay pods."""
AGGREGATES: dict[str, Json] = {
    "mode": {"count": 2},
    "maxStaleness": {"mode": "Async"},
    "queueCapacity": {"mode": "Async"},
}
"""By field of an aggregate: what is around it where it may have all its values."""


def job(spec: Json, name: str = "a") -> Json:
    """A manifest."""
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": spec}


@dataclass(frozen=True)
class Node:
    """A field, or the items of a list, with its schema."""

    path: Path
    schema: Json

    @cached_property
    def name(self) -> str:
        """`spec.network.mlp.hiddenSizes[0]`"""
        return dotted(self.path)

    def manifest(self, value: Any, others: Iterable[Path] = ()) -> Json:
        """A job that is good in all but, perhaps, this value, which other fields may have too."""
        if len(self.path) == 1:
            return job(value)
        spec = self._start()
        for path in (*others, self.path):
            spec = holding(ROOT["properties"]["spec"], path[1:], value, spec)
        return job(spec)

    def _start(self) -> Json:
        """A spec in which the field may have all its values."""
        match self.path:
            case ("spec", "environment", "atari", *_):
                return SHORTEST | {"environment": {"id": "ALE/Pong-v5"}}
            case ("spec", "replay", *_):
                return DEDICATED
            case ("spec", "algorithm", algorithm, "aggregate", str(field)):
                return SHORTEST | {"algorithm": {algorithm: {"aggregate": AGGREGATES.get(field, {})}}}
        return SHORTEST


def nodes(schema: Json | None = None, path: Path = ("spec",)) -> Iterator[Node]:
    """The spec and everything in it, from the top."""
    schema = ROOT["properties"]["spec"] if schema is None else schema
    yield Node(path, schema)
    for key, child in schema.get("properties", {}).items():
        yield from nodes(child, (*path, key))
    if "items" in schema:
        yield from nodes(schema["items"], (*path, 0))


def choices(schema: Json) -> tuple[str, ...]:
    """The fields of which exactly one must be set; none in an object that is no union."""
    for validation in schema.get("x-kubernetes-validations", ()):
        if validation["rule"].endswith(".filter(x, x).size() == 1"):
            return tuple(re.findall(r"has\(self\.(\w+)\)", validation["rule"]))
    return ()


def example(schema: Json) -> Any:
    """Some value that obeys the schema, with as little in it as possible."""
    if "enum" in schema:
        return schema["enum"][-1]
    match schema["type"]:
        case "object":
            needed = [*schema.get("required", ()), *choices(schema)[-1:]]
            return {key: example(schema["properties"][key]) for key in needed}
        case "array":
            return [example(schema["items"])] * schema.get("minItems", 0)
        case "string":
            return TEXTS[schema.get("pattern")].of_length(max(3, schema.get("minLength", 0)))
        case "boolean":
            return True
        case _:
            return schema["maximum"]


def holding(schema: Json, path: Path, value: Any, start: Any = None) -> Any:
    """What obeys `schema`, made from `start` or else from an example, but with `value` at `path`."""
    if not path:
        return value
    key, rest = path[0], path[1:]
    if isinstance(key, int):
        return [holding(schema["items"], rest, value)]
    whole = dict(example(schema) if start is None else start)
    if key in choices(schema):
        whole = {other: kept for other, kept in whole.items() if other not in choices(schema)} | {
            key: whole.get(key)
        }
    whole[key] = holding(schema["properties"][key], rest, value, whole.get(key))
    return whole
