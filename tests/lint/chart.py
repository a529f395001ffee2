"""The chart's values are explained and closed to unknown keys, and the page on installing has their defaults."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from functools import reduce
from typing import Any

import yaml

from tests.docs_pages import ROOT, pages
from tests.lint.problem import Problem, line_of
from tests.unit.charts.chart_files import CHART, Json, chart, schema, values

FOLDER = str(CHART.relative_to(ROOT))
INSTALL = "docs/install.md"
EXPLAINED_ABOVE = (
    *("resources.", "strategy."),
    *(f"jobs.resources.{role}." for role in ("learner", "replay", "sampler")),
)
"""Kubernetes objects with a single comment for all their keys."""


def schema_of(path: str) -> Json:
    """Returns the schema of a value (`image.tag`), or an empty one if the chart has no such value."""
    node = schema()
    for key in path.split("."):
        node = node.get("properties", {}).get(key, {})
        node = schema()["definitions"][node["$ref"].rpartition("/")[2]] if "$ref" in node else node
    return node


def unexplained_values() -> Iterator[Problem]:
    """Finds values without a comment above them, and objects with a schema that accepts unknown keys."""
    path = CHART / "values.yaml"
    lines = path.read_text().splitlines()
    for name, line in values_by_line(yaml.compose(path.read_text(), yaml.CSafeLoader)):
        if not lines[line - 2].strip().startswith("#") and not name.startswith(EXPLAINED_ABOVE):
            yield Problem(f"{FOLDER}/values.yaml", line, f"{name} has no comment: write above it what it is")
        if "properties" in schema_of(name) and "additionalProperties" not in schema_of(name):
            text = f"the schema of {name} accepts unknown keys: set additionalProperties"
            yield Problem(f"{FOLDER}/values.yaml", line, text)


def values_by_line(node: Any, prefix: str = "") -> Iterator[tuple[str, int]]:
    """Yields the path and the line of each value in a file of values."""
    for key, value in node.value:
        path = f"{prefix}{key.value}"
        yield path, key.start_mark.line + 1
        if isinstance(value, yaml.MappingNode) and "properties" in schema_of(path):
            yield from values_by_line(value, f"{path}.")


def outdated_copies() -> Iterator[Problem]:
    """Finds a definition or a version in the chart, or in the page, that is not the one of this tree."""
    crd, page = f"{FOLDER}/files/crd.yaml", pages()[INSTALL]
    version = tomllib.loads((ROOT / "operator/pyproject.toml").read_text())["project"]["version"]
    if (ROOT / crd).read_bytes() != (ROOT / "crds/rltraining.dev_rltrainingjobs.yaml").read_bytes():
        yield Problem(crd, 1, "differs from crds/rltraining.dev_rltrainingjobs.yaml: run make crd")
    for field in ("version", "appVersion"):
        if chart()[field] != version:
            yield Problem(f"{FOLDER}/Chart.yaml", 1, f"{field} is not the operator's version, {version}")
    for tag in set(re.findall(r"rltraining-(?:operator|trainer):([\d.]+)", page)) - {version}:
        yield Problem(INSTALL, line_of(page, f":{tag}"), f"the version is {version}, not {tag}")
    oldest = re.sub(r">=(\d+\.\d+).*", r"Kubernetes \1 or newer", chart()["kubeVersion"])
    if oldest not in page:
        yield Problem(INSTALL, 1, f"the chart needs {oldest}: correct the page")


def wrong_defaults(page: str | None = None) -> Iterator[Problem]:
    """Finds values in the page on installing that do not exist or have another default."""
    page = page or pages()[INSTALL]
    rows = list(re.finditer(r"^\| (`[^|]+) \| ([^|]+) \| [^|]+ \|$", page, re.MULTILINE))
    if not rows:
        yield Problem(INSTALL, 1, "no table of values was found: correct this check")
    for row in rows:
        names, given = re.findall(r"`([\w.]+)`", row[1]), row[2].split(", ")
        if len(given) not in (1, len(names)):
            yield Problem(INSTALL, line_of(page, row[0]), "give one default for each value, or one for all")
        for name, said in zip(names, given * len(names) if len(given) == 1 else given, strict=False):
            default = reduce(lambda found, key: (found or {}).get(key), name.split("."), values())
            words = "" if isinstance(default, dict | list) else str(default)
            # An empty object or list is described in words.
            if said.casefold() != words.casefold() if words else re.search(r"\d|true|false", said):
                yield Problem(INSTALL, line_of(page, row[0]), f"{name} is {default} by default, not {said}")
    for name in re.findall(r"`([a-z]\w+(?:\.\w+)+)(?::[^`]*)?`", page):
        if name.split(".")[0] in values() and not schema_of(name):
            yield Problem(INSTALL, line_of(page, f"`{name}"), f"the chart has no value {name}: correct it")


CHECKS = (unexplained_values, outdated_copies, wrong_defaults)
