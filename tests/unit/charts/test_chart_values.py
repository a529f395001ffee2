"""Chart.yaml, values.yaml and values.schema.json: complete, strict, and one with the rest of the tree."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from chart_files import CHART, ROOT, Json, chart, paths, resolve, schema, schema_of, values

LINES_MAX = 128
PASSED_ON = frozenset(
    {
        "global",  # helm hands it to every chart
        "podSecurityContext",
        "containerSecurityContext",
        "strategy.rollingUpdate",
        *(f"affinity.{kind}" for kind in ("nodeAffinity", "podAffinity", "podAntiAffinity")),
        "networkPolicy.metricsFrom[].ipBlock",
        "extraEnv[].valueFrom",
        "tolerations[]",
        "resources.claims[]",
        "topologySpreadConstraints[]",
    }
)
"""Objects that go to Kubernetes as they are: it knows their keys, the chart does not."""


def test_the_charts_definition_is_the_one_users_apply() -> None:
    ours = (CHART / "files" / "crd.yaml").read_bytes()
    theirs = (ROOT / "crds" / "rltraining.dev_rltrainingjobs.yaml").read_bytes()
    assert ours == theirs, "charts/rltraining-operator/files/crd.yaml is out of date: make crd"


def test_the_chart_installs_the_operator_of_this_tree() -> None:
    project = tomllib.loads((ROOT / "operator" / "pyproject.toml").read_text())["project"]
    assert chart()["appVersion"] == project["version"]


def test_the_definition_is_found_where_the_template_cuts_it() -> None:
    text = (CHART / "files" / "crd.yaml").read_text()
    head, found, _ = text.partition("\nspec:\n")
    assert found
    assert head.endswith("metadata:\n  name: rltrainingjobs.rltraining.dev"), (
        "templates/crd.yaml writes apiVersion, kind and metadata itself; the file has more than these"
    )


@pytest.mark.parametrize("path", list(paths(values())))
def test_every_value_has_a_comment(path: str) -> None:
    assert path in _commented(), f"values.yaml: say above {path} what it is"


def test_every_value_has_a_schema_and_every_schema_a_value() -> None:
    optional = {
        "global",
        "resources.claims",
        "jobs.networkPolicy.prometheus.namespaceSelector",
        "jobs.networkPolicy.prometheus.podSelector",
        *(f"affinity.{kind}" for kind in ("nodeAffinity", "podAffinity", "podAntiAffinity")),
    }
    has_value, has_schema = set(paths(values())), set(_schema_paths(schema()))
    assert sorted(path for path in has_value if not schema_of(path)) == []
    assert sorted(has_schema - has_value - optional) == []


def test_unknown_keys_are_refused_everywhere() -> None:
    loose = {path for path, node in _objects(schema()) if node.get("additionalProperties") is None}
    assert {path for path in loose if not path.endswith("matchExpressions[]")} == PASSED_ON


def test_lines_are_short_enough_to_read() -> None:
    for number, line in enumerate((CHART / "values.yaml").read_text().splitlines(), 1):
        assert len(line) <= LINES_MAX, f"values.yaml:{number} has {len(line)} characters"


def _commented() -> set[str]:
    """Paths of values.yaml with a comment on the line above, or in the same block under one that has it."""
    found: set[str] = set()
    stack: list[tuple[int, str]] = []
    above = ""
    for line in (CHART / "values.yaml").read_text().splitlines():
        match = re.match(r"( *)([A-Za-z]\w*):", line)
        if match:
            indent, key = len(match[1]), match[2]
            stack = [entry for entry in stack if entry[0] < indent]
            path = ".".join([*(name for _, name in stack), key])
            stack.append((indent, key))
            parent = path.rpartition(".")[0]
            # Kubernetes' own objects are explained once, above them.
            if above.startswith("#") or (parent in found and parent in {"resources", "strategy"}):
                found.add(path)
        above = line.strip()
    return found


def _schema_paths(node: Json, prefix: str = "") -> Iterator[str]:
    for key, inner in node.get("properties", {}).items():
        path = f"{prefix}{key}"
        yield path
        if not path.endswith("Selector"):
            yield from _schema_paths(resolve(inner), f"{path}.")


def _objects(node: Json, path: str = "") -> Iterator[tuple[str, Json]]:
    """Every schema of an object, with where it stands; `[]` is an item of a list."""
    node = resolve(node)
    if "object" in node.get("type", ""):  # a name, or a list of them
        yield path, node
    for key, inner in node.get("properties", {}).items():
        yield from _objects(inner, f"{path}.{key}" if path else key)
    items: Any = node.get("items")
    if items:
        yield from _objects(items, f"{path}[]")
