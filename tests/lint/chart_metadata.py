"""The chart's README and annotations match its other files, and each value for production is necessary and has its reason."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import Any

import yaml

from charts.readme import render
from tests.lint.chart import FOLDER, values_by_line
from tests.lint.problem import Problem, line_of
from tests.unit.charts.chart_files import CHART, Json, chart, values

PRODUCTION = "values-production.yaml"


def outdated_readme() -> Iterator[Problem]:
    """Finds a README that is not the one of Chart.yaml and values.yaml."""
    if (CHART / "README.md").read_text() != render():
        yield Problem(
            f"{FOLDER}/README.md", 1, "differs from Chart.yaml, values.yaml or its template: run make chart"
        )


def wrong_annotations(annotations: Json | None = None) -> Iterator[Problem]:
    """Finds a description of the kind that is not the definition's."""
    definition = yaml.load((CHART / "files" / "crd.yaml").read_text(), yaml.CSafeLoader)
    expected = {
        "kind": definition["spec"]["names"]["kind"],
        "version": definition["spec"]["versions"][0]["name"],
        "name": definition["metadata"]["name"],
    }
    [described] = yaml.safe_load((annotations or chart()["annotations"])["artifacthub.io/crds"])
    line = line_of((CHART / "Chart.yaml").read_text(), "artifacthub.io/crds:")
    for key, value in expected.items():
        if described[key] != value:
            yield Problem(
                f"{FOLDER}/Chart.yaml", line, f"{key} is {value} in files/crd.yaml, not {described[key]}"
            )


def wrong_production_values(text: str | None = None) -> Iterator[Problem]:
    """Finds values for production that are the default, or that have no comment above them or above the object they are in."""
    text = text or (CHART / PRODUCTION).read_text()
    lines = text.splitlines()
    found = {
        name: line
        for name, line in values_by_line(yaml.compose(text, yaml.CSafeLoader))
        # What an object contains that is empty by default is part of one value.
        if "." not in name or _at(values(), name.rpartition(".")[0])
    }
    explained = {name for name, line in found.items() if lines[line - 2].strip().startswith("#")}
    for name, line in found.items():
        if not explained & {name, name.rpartition(".")[0]}:
            yield Problem(
                f"{FOLDER}/{PRODUCTION}", line, f"{name} has no reason: write it above as a comment"
            )
        is_object = any(other.startswith(f"{name}.") for other in found)
        if not is_object and _at(values(), name) == _at(yaml.safe_load(text), name):
            yield Problem(f"{FOLDER}/{PRODUCTION}", line, f"{name} has its default: delete the line")


def _at(tree: Any, path: str) -> Any:
    return reduce(lambda found, key: (found or {}).get(key), path.split("."), tree)


CHECKS = (outdated_readme, wrong_annotations, wrong_production_values)
