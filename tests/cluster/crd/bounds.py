"""Manifests at the bounds of every field, and beyond them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rltraining_api.introspect import dotted
from sample_texts import TEXTS
from schema_walk import Json, Node, Path, example

KNOWN = {
    "type", "description", "default", "format", "properties", "required", "items", "nullable", "enum", "pattern",
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "minItems", "maxItems",
    "x-kubernetes-list-type", "x-kubernetes-validations", "x-kubernetes-preserve-unknown-fields",
}  # fmt: skip
"""What a schema of ours may say: a word that is not here would be a bound without a case."""

ORDERED: tuple[tuple[Path, ...], ...] = (
    (("batchSize",), ("replay", "minimum"), ("replay", "capacity")),
    (("rhoClip",), ("cClip",)),
    (("ppo", "minibatches"), ("ppo", "rolloutLength")),
)
"""Fields of an object that rules compare: set to one value they obey."""

WRONG_TYPES: dict[str, tuple[Any, ...]] = {
    "integer": ("1", 1.5, True, []),
    "number": ("1", True, {}),
    "string": (1, True, ["a"]),
    "boolean": ("true", 1),
    "array": ({}, "a", 1),
    "object": ([], "a", 1),
}


@dataclass(frozen=True)
class Case:
    """A job to try."""

    field: str
    """The field it is about, and which a refusal must name."""
    what: str
    """What is tried, for the reader of a failure."""
    manifest: Json
    accepted: bool


def compared(path: Path) -> list[Path]:
    """The fields that rules compare with this one."""
    for group in ORDERED:
        for member in group:
            if path[-len(member) :] == member:
                return [(*path[: -len(member)], *other) for other in group if other != member]
    return []


def number_cases(node: Node) -> Iterator[Case]:
    """The bound itself and the next number outside; where the bound is excluded, inside and the bound."""
    if node.schema["type"] not in ("integer", "number"):
        return
    for word, excluded, out in (
        ("minimum", "exclusiveMinimum", -math.inf),
        ("maximum", "exclusiveMaximum", math.inf),
    ):
        bound, whole = node.schema[word], node.schema["type"] == "integer"
        if node.schema.get(excluded):
            inside, outside = math.nextafter(bound, -out), bound
        else:
            inside, outside = (
                bound,
                bound + int(math.copysign(1, out)) if whole else math.nextafter(bound, out),
            )
        yield Case(node.name, f"{word}: {inside!r}", node.manifest(inside, compared(node.path)), True)
        yield Case(node.name, f"{word}: {outside!r}", node.manifest(outside), False)


def text_cases(node: Node) -> Iterator[Case]:
    """Lengths, in characters; the pattern; each word of an enum and one that it has not."""
    if node.schema["type"] != "string":
        return
    if "enum" in node.schema:
        for word in node.schema["enum"]:
            yield Case(node.name, f"enum: {word}", node.manifest(word), True)
        for word in ("", node.schema["enum"][0].lower(), "Other"):
            yield Case(node.name, f"enum: {word!r}", node.manifest(word), False)
        return
    texts, most = TEXTS[node.schema.get("pattern")], node.schema["maxLength"]
    for text in texts.good:
        yield Case(node.name, f"pattern: {text!r}", node.manifest(text), True)
    for text in texts.bad:
        yield Case(node.name, f"pattern: {text!r}", node.manifest(text), False)
    for length in (most, most + 1):
        yield Case(
            node.name, f"maxLength: {length}", node.manifest(texts.of_length(length)), accepted=length <= most
        )
    if least := node.schema.get("minLength", 0):
        yield Case(node.name, f"minLength: {least}", node.manifest("a" * least), True)
        yield Case(node.name, f"minLength: {least - 1}", node.manifest("a" * (least - 1)), False)


def list_cases(node: Node) -> Iterator[Case]:
    """Numbers of items, and an item twice where each may stand once."""
    if node.schema["type"] != "array":
        return
    item, least, most = node.schema["items"], node.schema["minItems"], node.schema["maxItems"]
    for count in (least - 1, least, most, most + 1):
        items = [item["minimum"] + i if item["type"] == "integer" else example(item) for i in range(count)]
        yield Case(node.name, f"{count} items", node.manifest(items), accepted=least <= count <= most)
    if node.schema["x-kubernetes-list-type"] == "set":
        value = example(item)
        refused = node.manifest([value, value])
        yield Case(node.name, "the same item twice", refused, False)


def type_cases(node: Node) -> Iterator[Case]:
    """Values of other types; and null, where it has a meaning."""
    for value in WRONG_TYPES[node.schema["type"]]:
        yield Case(node.name, f"type: {value!r}", node.manifest(value), False)
    if node.schema.get("nullable"):
        yield Case(node.name, "type: null", node.manifest(None), True)


def key_cases(node: Node) -> Iterator[Case]:
    """Required keys left out, one by one, and a key that is not known."""
    if "properties" not in node.schema:
        return
    whole = example(node.schema)
    for key in node.schema.get("required", ()):
        less = {kept: value for kept, value in whole.items() if kept != key}
        yield Case(dotted((*node.path, key)), "required: left out", node.manifest(less), False)
    more = node.manifest({**whole, "unheardOf": 1})
    yield Case(dotted((*node.path, "unheardOf")), "not a known key", more, False)


def free_cases(node: Node) -> Iterator[Case]:
    """What is somebody else's schema takes any keys."""
    if "x-kubernetes-preserve-unknown-fields" in node.schema:
        yield Case(node.name, "any keys", node.manifest({"unheardOf": {"deep": [1, None, "a"]}}), True)


KINDS: dict[str, Callable[[Node], Iterator[Case]]] = {
    "number": number_cases,
    "text": text_cases,
    "list": list_cases,
    "type": type_cases,
    "keys": key_cases,
    "free-form": free_cases,
}
