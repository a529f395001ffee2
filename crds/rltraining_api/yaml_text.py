"""Reading YAML as Kubernetes does: JSON types only, `1e-3` is a number, a key stands once."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator
from typing import Any

import yaml


class YamlError(ValueError):
    """Text that is not YAML, or YAML that is not JSON: one sentence with line and column."""


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader with the differences named above."""

    yaml_implicit_resolvers = {  # noqa: RUF012  (PyYAML's own protocol)
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":float", ":timestamp"))]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                continue
            if key.tag != "tag:yaml.org,2002:str":
                raise YamlError(f"{_place(key.start_mark)}: a key must be text: put it in quotes")
            if key.value in seen:
                raise YamlError(f"{_place(key.start_mark)}: the key {key.value!r} stands here a second time")
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _number(loader: _Loader, node: yaml.ScalarNode) -> float | int:
    """A float; whole ones become integers, as they do on their way through an API server."""
    text = str(node.value).lower()
    value = float(text.replace(".inf", "inf").replace(".nan", "nan"))
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _integer(loader: _Loader, node: yaml.ScalarNode) -> int:
    try:
        return int(loader.construct_yaml_int(node))
    except ValueError:
        short = str(node.value)[:20]
        raise YamlError(f"{_place(node.start_mark)}: is no number that can be read: {short}...") from None


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
    ),
    list("-+0123456789."),
)
_Loader.add_constructor("tag:yaml.org,2002:float", _number)
_Loader.add_constructor("tag:yaml.org,2002:int", _integer)


def documents(text: str) -> list[Any]:
    """All documents of a text that are not empty, as JSON values.

    Raises YamlError.
    """
    return [document for document in _load(text) if document is not None]


def value(text: str) -> Any:
    """One value, typed as in a manifest: `1e-3` is a number, `true` a boolean, `[64, 64]` a list.

    Raises YamlError.
    """
    found = list(_load(text))
    if len(found) > 1:
        raise YamlError("one value is needed, found several documents")
    return found[0] if found else None


def _load(text: str) -> Iterator[Any]:
    try:
        yield from yaml.load_all(text, _Loader)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise YamlError(
            f"line {line}: holds a character that YAML forbids (#x{error.character:04x})"
        ) from None
    except yaml.MarkedYAMLError as error:
        raise YamlError(_sentence(error, text)) from None
    except RecursionError:
        raise YamlError("lists or objects within each other go too deep") from None


def _sentence(error: yaml.MarkedYAMLError, text: str) -> str:
    mark = error.problem_mark or error.context_mark
    problem = error.problem or error.context or "cannot be read"
    if "'\\t'" in problem:
        problem = "a tab stands where YAML needs spaces"
    if mark is None:
        return f"is not valid YAML: {problem}"
    lines = text.splitlines()
    here = lines[mark.line].strip() if mark.line < len(lines) else ""
    near = f", at: {here[:60]}" if here else ""
    return f"{_place(mark)}: is not valid YAML: {problem}{near}"


def _place(mark: yaml.Mark) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}"
