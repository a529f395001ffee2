"""Random jobs, made from the schema of the CRD: at each bound, beyond each bound, and around each rule."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

from rltraining_api.crd import crd
from rltraining_api.introspect import dotted
from rltraining_api.names import API_VERSION, KIND
from verdicts import Complaints, Json, of_the_models

Path = tuple[str | int, ...]
"""Keys from the top of the object; 0 is the first item of a list."""

ROOT: Json = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
SHORTEST: Json = {
    "algorithm": {"impala": {}},
    "environment": {"id": "CartPole-v1"},
    "stop": {"environmentSteps": 1_000_000},
}
"""A spec with the required fields only."""

TEXTS = (
    "", " ", "0", "a", "A", "_", "ä", "a b", "a\tb", "a\n", "\na", "a\x0bb", "a\u00a0b", "a\u3000b", "-a", "a-", "1-a",
    "a.b", ".a", "a.", "a..b", "a_b", "1a", "a.1b", "a.b-c", "_a._b", "a:b", "a.b_1:C.d", ":b", "a:", "a.:b", "a:1b",
    "a:b:c", "a:b-c", "ä:b", "a:b\n", "a/b", "/a", "a/", "a/b/c", "A.b/c", "a b/c", "a/b c", "a/b?", "a/b/c:(d)", "-a/b",
    "s3://b/p", "file:///a", "git+ssh://x", "s3:/b", "s3://", "S3://b", "3s://b", "s3://a b", "s3://a\x0bb", "s3://a\n",
    "ALE/Pong-v5", "CartPole-v1", "my_envs.grid:Grid-v0", "ä-v0", "m:ns/Grid.v0", "ghcr.io/o/i:1.0", "h:5000/i@sha256:0123",
    "rltraining.dev/operator",
)  # fmt: skip
"""Tried with each pattern, since API server and models may differ on letters, spaces or the end of a text."""

NAMES = ("a", "a-1", "1-a", "-a", "a-", "A", "a.b", "ab1", "a" * 50, "a" * 51)
VALUES = {"integer": 1, "number": 1.5, "string": "1", "boolean": True, "array": [], "object": {}}
"""A value of each type. Each is wrong for a field of another type, except an integer for a number."""
NEVER_ACCEPTED = re.compile(r"spec\.algorithm\.ppo\.aggregate\.(mode|queueCapacity)")
"""Fields that only mode Async uses. ppo refuses this mode, and any value of these fields but the default."""
TRIES = 40_000
"""Limit on the random jobs that are tried until the models give the wanted verdict."""
SETS_FIELD, SETS_RELATED = 0.1, 0.7
"""Probability of setting an optional field in general, and one related to the field under test."""


@dataclass(frozen=True)
class Node:
    """A field, or the items of a list, with its schema."""

    path: Path
    schema: Json

    @property
    def name(self) -> str:
        """`spec.network.mlp.hiddenSizes[0]`"""
        return dotted(self.path)


@dataclass(frozen=True)
class Rule:
    """A CEL rule."""

    path: Path
    """Path of the object that the rule validates."""
    text: str
    message: str

    @property
    def fields(self) -> frozenset[Path]:
        """The paths of the fields that the rule names."""
        named = re.findall(r"self\.([\w.]+?)(?:\.(?:size|matches)\(|(?=[^\w.])|$)", self.text)
        return frozenset((*self.path, *name.split(".")) for name in named)


def job(spec: Json, name: str = "a") -> Json:
    """A manifest."""
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": spec}


def nodes(schema: Json | None = None, path: Path = ("spec",)) -> Iterator[Node]:
    """Yields the spec and all its fields, from the top."""
    schema = ROOT["properties"]["spec"] if schema is None else schema
    yield Node(path, schema)
    for key, child in schema.get("properties", {}).items():
        yield from nodes(child, (*path, key))
    if "items" in schema:
        yield from nodes(schema["items"], (*path, 0))


@cache
def rules() -> tuple[Rule, ...]:
    """Returns the rules that validate a job, without the rules that validate a change."""
    found = [Rule((), each["rule"], each["message"]) for each in ROOT["x-kubernetes-validations"]]
    for node in nodes():
        for each in node.schema.get("x-kubernetes-validations", ()):
            found.append(Rule(node.path, each["rule"], each["message"]))
    return tuple(rule for rule in found if "oldSelf" not in rule.text)


@cache
def related(path: Path) -> frozenset[Path]:
    """Returns the field and all fields that rules compare with it, directly or through another field."""
    above = {path[:length] for length in range(2, len(path) + 1)}
    # Leave out the rules of unions and of `reproducible`, which would relate most fields to each other.
    compared = [rule.fields for rule in rules() if not re.search("filter|self.reproducible", rule.text)]
    found = {path}.union(*(fields for fields in compared if fields & above))
    while more := set[Path]().union(*(fields for fields in compared if fields & found)) - found:
        found |= more
    return frozenset(found)


@cache
def _above(paths: frozenset[Path]) -> frozenset[Path]:
    """Returns the paths and all paths above them."""
    return frozenset(path[:length] for path in paths for length in range(len(path) + 1))


def choices(schema: Json) -> tuple[str, ...]:
    """Returns the fields of a union, exactly one of which must be set. Empty for other objects."""
    for validation in schema.get("x-kubernetes-validations", ()):
        if validation["rule"].endswith(".filter(x, x).size() == 1"):
            return tuple(re.findall(r"has\(self\.(\w+)\)", validation["rule"]))
    return ()


def bounds(schema: Json) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """Returns the last valid and the first invalid value of a number, for its minimum and its maximum."""

    def bound(word: str, excluded: str, out: float) -> tuple[Any, Any]:
        value = schema[word]
        if schema.get(excluded):
            return math.nextafter(value, -out), value
        whole = schema["type"] == "integer"
        return value, value + int(math.copysign(1, out)) if whole else math.nextafter(value, out)

    return bound("minimum", "exclusiveMinimum", -math.inf), bound("maximum", "exclusiveMaximum", math.inf)


def admits(schema: Json, text: str) -> bool:
    """Returns whether a text matches the pattern and the length of the schema."""
    form = re.fullmatch(schema.get("pattern", ".*").removeprefix("^").removesuffix("$"), text, re.DOTALL)
    return form is not None and schema.get("minLength", 0) <= len(text) <= schema["maxLength"]


def text_of(schema: Json, length: int) -> str:
    """Returns a valid text of this length, which is at least 3."""
    long = (f"{start}{'a' * (length - len(start))}" for start in ("", "a:", "a/", "s3://", "a://"))
    return next(text for text in long if admits(schema | {"maxLength": length}, text))


@cache
def _texts(pattern: str | None, most: int) -> list[str]:
    """Returns the texts that match a pattern."""
    schema = {"maxLength": most, "minLength": 1} | ({"pattern": pattern} if pattern else {})
    return [text for text in TEXTS if admits(schema, text)]


class Draw:
    """Draws random jobs. `wanted` are the paths of fields to set more often than others, `always` is a field to set in
    each job, and `fixed` its value, which is drawn if absent."""

    def __init__(self, random: Random, wanted: frozenset[Path], always: Path = (), *fixed: Any) -> None:
        self._random = random
        self._wanted = wanted
        self._always = always
        self._fixed = fixed

    def manifest(self) -> Json:
        return job(self._value(ROOT["properties"]["spec"], ("spec",)))

    def _value(self, schema: Json, path: Path) -> Any:
        if self._fixed and path == self._always:
            return self._fixed[0]
        if "enum" in schema:
            return self._random.choice(schema["enum"])
        match schema["type"]:
            case "object":
                return {
                    key: self._value(schema["properties"][key], (*path, key))
                    for key in self._keys(schema, path)
                }
            case "array":
                # The path that every job sets may be inside an item.
                inside = len(self._always) > len(path) and self._always[: len(path)] == path
                count = max(schema.get("minItems", 0), int(inside)) + self._random.randrange(2)
                items = [self._value(schema["items"], (*path, 0)) for _ in range(count)]
                return list(dict.fromkeys(items)) if schema["x-kubernetes-list-type"] == "set" else items
            case "string":
                return self._random.choice(_texts(schema.get("pattern"), schema["maxLength"]))
            case "boolean":
                return self._random.random() < 0.5
        (least, _), (most, _) = bounds(schema)
        small = [value for value in (0, 0.5, 1, 2, 3, 8) if least <= value <= most]
        if schema["type"] == "integer":
            small = [value for value in small if isinstance(value, int)]
        return self._random.choice([least, least, most, most, *small])

    def _keys(self, schema: Json, path: Path) -> list[str]:
        union = choices(schema)
        keys = [
            key
            for key in schema.get("properties", ())
            if key not in union
            and (key in schema.get("required", ()) or self._random.random() < self._chance((*path, key)))
        ]
        return keys + self._of_union(path, union)

    def _of_union(self, path: Path, union: tuple[str, ...]) -> list[str]:
        """Chooses one field, preferably a wanted one. Sometimes chooses none or two, to break the union's rule."""
        if not union:
            return []
        chances = {key: self._chance((*path, key)) for key in union}
        best = [key for key in union if chances[key] == max(chances.values())]
        breaks = max(chances.values()) < 1 and any((*path, key) in self._wanted for key in union)
        count = self._random.choice([0, 1, 1, 2]) if breaks else 1
        return self._random.sample(best, min(count, len(best)))

    def _chance(self, path: Path) -> float:
        if self._always[: len(path)] == path:
            return 1
        return SETS_RELATED if path in _above(self._wanted) else SETS_FIELD


def replaced(whole: Any, path: Path, value: Any) -> Any:
    """Returns a copy with another value at the path."""
    if not path:
        return value
    copy = list(whole) if isinstance(whole, list) else dict(whole)
    copy[path[0]] = replaced(whole[path[0]], path[1:], value)
    return copy


def at(whole: Any, path: Path) -> Any:
    for key in path:
        whole = whole[key]
    return whole


def accepted(random: Random, node: Node, *value: Any) -> Json:
    """Returns a random job that sets the field, to `value` if given, and that the models accept."""
    for _ in range(TRIES):
        manifest = Draw(random, related(node.path), node.path, *value).manifest()
        if NEVER_ACCEPTED.match(node.name) or not of_the_models(manifest):
            return manifest
    raise AssertionError(f"no job is accepted that has {node.name} {value or ''}")


def cases(random: Random) -> Iterator[tuple[str, Json]]:
    """Yields jobs for each field, derived from its schema, and for each name, with the name of the tested field."""
    tried: set[str] = set()
    for node in nodes():
        pattern = node.schema.get("pattern", "")
        texts = () if pattern in tried else TEXTS
        if node.schema["type"] == "string":
            tried.add(pattern)
        for inside, outside in _values(random, node, texts):
            manifest = accepted(random, node, inside)
            yield node.name, manifest
            yield from ((node.name, replaced(manifest, node.path, value)) for value in outside)
        yield from ((node.name, manifest) for manifest in _of_types_and_keys(random, node))
    yield from (("metadata.name", job(SHORTEST, name)) for name in NAMES)


def _values(random: Random, node: Node, texts: tuple[str, ...]) -> Iterator[tuple[Any, list[Any]]]:
    """Yields valid values of the field, each with a list of invalid values."""
    schema = node.schema
    if "enum" in schema:
        yield from ((word, []) for word in schema["enum"][1:])
        yield schema["enum"][0], ["", schema["enum"][0].lower(), "Other"]
    elif schema["type"] in ("integer", "number"):
        yield from ((inside, [outside]) for inside, outside in bounds(schema))
    elif schema["type"] == "string":
        most, least = schema["maxLength"], schema.get("minLength", 0)
        wrong = [text for text in texts if not admits(schema, text)]
        yield (
            text_of(schema, most),
            [text_of(schema, most + 1), *(["a" * (least - 1)] if least else []), *wrong],
        )
        yield from ((text, []) for text in texts if admits(schema, text) and text not in wrong)
    elif schema["type"] == "array":
        item, least, most = schema["items"], schema.get("minItems", 0), schema["maxItems"]
        first = (*node.path, 0)
        if item["type"] == "integer":
            items = list(range(item["minimum"], item["minimum"] + most + 1))
        else:
            items = [at(accepted(random, Node(first, item)), first) for _ in range(most + 1)]
        twice = [[items[0]] * 2] if schema["x-kubernetes-list-type"] == "set" else []
        yield items[:least], [*([items[: least - 1]] if least else []), *twice]
        yield items[:most], [items]


def _of_types_and_keys(random: Random, node: Node) -> Iterator[Json]:
    """Yields jobs with a value of another type, an allowed null, a required key left out, or an unknown key."""
    manifest = accepted(random, node)
    value, schema = at(manifest, node.path), node.schema
    fits = {"number": ("integer", "number")}.get(schema["type"], (schema["type"],))
    others: list[Any] = [random.choice([VALUES[kind] for kind in VALUES if kind not in fits])]
    others += [None] if schema.get("nullable") else []
    if schema["type"] == "object":
        others += [{kept: value[kept] for kept in value if kept != key} for key in schema.get("required", ())]
        others.append(value | {"unheardOf": {"deep": [1, None, "a"]}})
    for other in others:
        yield replaced(manifest, node.path, other)


def breaches(random: Random, rule: Rule, count: int = 5) -> list[Json]:
    """Returns random jobs that break this rule and no other rule of the models."""
    found: list[Json] = []
    # A rule is broken with the algorithms that it names, or with any other.
    others = frozenset(path for path in rule.fields if path[:2] != ("spec", "algorithm"))
    for _ in range(TRIES):
        manifest = Draw(random, random.choice((rule.fields, others))).manifest()
        if not rule.path:
            manifest["metadata"]["name"] = random.choice(NAMES)
        if _is_of(rule, of_the_models(manifest)):
            found.append(manifest)
        if len(found) == count:
            return found
    raise AssertionError(f"no job breaks only this rule: {dotted(rule.path)}: {rule.message}")


def _is_of(rule: Rule, found: Complaints) -> bool:
    """Returns whether the models report only a breach of this rule. Their messages begin like the rule's."""
    path = rule.path or ("metadata", "name")
    begins = rule.message.removeprefix("metadata.name ")[:24]
    return [(each.field, each.message[:24]) for each in found] == [(dotted(path), begins)]
