"""Reads YAML as Kubernetes does: JSON types only, `1e-3` is a number, unique keys, bounded aliases and nesting."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple

import yaml

from rltraining_api.bounds import ALIASED_MAX, BYTES_MAX, DEPTH_MAX, TOO_DEEP, TOO_LARGE, VALUES_MAX

NUMBER_MAX = 400
"""Characters of a number. Parsing a number of base 60 takes time quadratic in its length."""


class YamlError(ValueError):
    """The text is not YAML, or the YAML is not JSON. The message is one sentence with line and column."""


class _Extent(NamedTuple):
    """The size of an anchored value."""

    values: int
    height: int
    """Levels of lists and objects."""


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader with the differences listed in the module's docstring."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._values = self._aliased = self._depth = self._deepest = 0
        self._anchors: dict[str, _Extent] = {}

    yaml_implicit_resolvers = {  # noqa: RUF012  (PyYAML's own protocol)
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":float", ":timestamp"))]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def compose_document(self) -> yaml.Node | None:
        self._aliased = 0
        self._anchors.clear()
        return super().compose_document()

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Composes a node and counts its values, those of an alias at each use, because JSON repeats them."""
        event: yaml.NodeEvent = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent):
            node = super().compose_node(parent, index)
            # An anchor that is still incomplete contains itself.
            extent = self._anchors.get(str(event.anchor), _Extent(1, 0))
            self._values += extent.values
            self._aliased += extent.values
            self._go_down_to(self._depth + extent.height, event)
            self._check_count(event)
            if self._aliased > ALIASED_MAX:
                raise YamlError(
                    f"{_place(event.start_mark)}: aliases stand for more than {ALIASED_MAX:,} values: write the values out"
                )
            return node
        values, deepest = self._values, self._deepest
        self._depth += isinstance(event, yaml.CollectionStartEvent)
        self._deepest = 0
        self._go_down_to(self._depth, event)
        node = super().compose_node(parent, index)
        self._values += 1
        self._check_count(event)
        self._depth -= isinstance(event, yaml.CollectionStartEvent)
        if event.anchor is not None:
            self._anchors[event.anchor] = _Extent(self._values - values, self._deepest - self._depth)
        self._deepest = max(self._deepest, deepest)
        return node

    def _check_count(self, event: yaml.NodeEvent) -> None:
        # The file as a whole is bounded: it may have thousands of documents, each with aliases.
        if self._values > VALUES_MAX:
            raise YamlError(
                f"{_place(event.start_mark)}: the file holds more than {VALUES_MAX:,} values: split it"
            )

    def _go_down_to(self, depth: int, event: yaml.NodeEvent) -> None:
        self._deepest = max(self._deepest, depth)
        if depth > DEPTH_MAX:
            raise YamlError(f"{_place(event.start_mark)}: {TOO_DEEP}")

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Constructs a value. Raises YamlError for a text that does not fit its tag, such as `!!bool maybe`."""
        try:
            return super().construct_object(node, deep)
        except YamlError:
            raise
        except (ValueError, LookupError, AttributeError, TypeError, ArithmeticError):
            tag, value = str(node.tag).rpartition(":")[2], ascii(node.value)
            raise YamlError(f"{_place(node.start_mark)}: is no {tag[:20]}: {value[:20]}") from None

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                continue
            if key.tag != "tag:yaml.org,2002:str":
                raise YamlError(f"{_place(key.start_mark)}: a key must be text: put it in quotes")
            if key.value in seen:
                raise YamlError(f"{_place(key.start_mark)}: the key {key.value!r} is repeated here")
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _number(loader: _Loader, node: yaml.ScalarNode) -> float | int:
    """Constructs a float. Integral values become integers, as in an API server."""
    text = str(node.value).lower()
    value = float(text.replace(".inf", "inf").replace(".nan", "nan"))
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _integer(loader: _Loader, node: yaml.ScalarNode) -> int:
    problem = YamlError(f"{_place(node.start_mark)}: is not a readable number: {str(node.value)[:20]}...")
    if len(node.value) > NUMBER_MAX:
        raise problem
    try:
        return int(loader.construct_yaml_int(node))
    except ValueError:
        raise problem from None


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
    """Returns the non-empty documents of a text as JSON values.

    Raises YamlError, also if they are too large, are too deep, or have aliases that expand to too many values.
    """
    return [document for document in _load(text) if document is not None]


def value(text: str) -> Any:
    """Parses one value, typed as in a manifest: `1e-3` is a number, `true` a boolean, `[64, 64]` a list.

    Raises YamlError.
    """
    found = list(_load(text))
    if len(found) > 1:
        raise YamlError("one value is needed, found several documents")
    return found[0] if found else None


def _load(text: str) -> Iterator[Any]:
    if len(text) > BYTES_MAX:
        raise YamlError(TOO_LARGE)
    try:
        yield from yaml.load_all(text, _Loader)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise YamlError(
            f"line {line}: holds a character that YAML forbids (#x{error.character:04x})"
        ) from None
    except yaml.MarkedYAMLError as error:
        raise YamlError(_sentence(error, text)) from None
    except YamlError:
        raise
    except (ValueError, OverflowError):
        # PyYAML's scanner passes unchecked text to chr() and int().
        raise YamlError("holds an escape that is no character, or a number that cannot be read") from None
    except RecursionError:
        raise YamlError("lists or objects are nested too deeply") from None


def _sentence(error: yaml.MarkedYAMLError, text: str) -> str:
    mark = error.problem_mark or error.context_mark
    problem = error.problem or error.context or "cannot be read"
    if "'\\t'" in problem:
        problem = "found a tab; YAML needs spaces"
    if mark is None:
        return f"is not valid YAML: {problem}"
    lines = text.splitlines()
    here = lines[mark.line].strip() if mark.line < len(lines) else ""
    near = f", at: {here[:60]}" if here else ""
    return f"{_place(mark)}: is not valid YAML: {problem}{near}"


def _place(mark: Any) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}"
