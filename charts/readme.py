"""Writes the README of the chart from `readme.template.md`, Chart.yaml, values.yaml and values.schema.json: `make chart`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

CHARTS = Path(__file__).parent
CHART = CHARTS / "rltraining-operator"


@dataclass(frozen=True)
class Origin:
    """Where a reader of the README finds the chart, the images and this repository."""

    chart: str = "charts/rltraining-operator"
    """The chart in helm's commands."""
    images: str = "$REGISTRY"
    """Registry to set in helm's commands. Empty if it is the default of the values."""
    files: str = ""
    """Prefix of the files in commands."""
    pages: str = "../.."
    """Prefix of links to pages."""


@dataclass(frozen=True)
class Value:
    """A value of the chart."""

    name: str
    """Its path, such as `image.tag`."""
    description: str
    type: str
    default: str
    """The default as JSON. Empty for an object that the table splits into its keys."""


def render(chart: Path = CHART, origin: Origin | None = None) -> str:
    """Returns the README of the chart in a folder."""
    origin = origin or Origin()
    about = yaml.safe_load((chart / "Chart.yaml").read_text())
    [example] = yaml.safe_load(about["annotations"]["artifacthub.io/crdsExamples"])
    registry = f"--set image.registry={origin.images} --set trainerImage.registry={origin.images}"
    export = "$ export REGISTRY=registry.example.com/team     # your registry\n"
    texts = {
        "version": about["version"],
        "kubernetes": re.sub(r">=(\d+\.\d+).*", r"\1", about["kubeVersion"]),
        "example": yaml.safe_dump(example, sort_keys=False).strip(),
        "values": table(values(chart)),
        "registry": export if origin.images else "",
        "images": f" \\\n    {registry}" if origin.images else "",
        "chart": origin.chart,
        "files": origin.files,
        "pages": origin.pages,
    }
    template = (CHARTS / "readme.template.md").read_text()
    return re.sub(r"\{\{(\w+)\}\}", lambda match: str(texts[match[1]]), template)


def values(chart: Path = CHART) -> Iterator[Value]:
    """Yields the values of a chart in the order of the file."""
    text = (chart / "values.yaml").read_text()
    schema = json.loads((chart / "values.schema.json").read_text())
    yield from _values(yaml.compose(text, yaml.SafeLoader), text.splitlines(), schema, schema["definitions"])


def table(rows: Iterator[Value]) -> str:
    """Returns values as a Markdown table."""
    lines = ["| value | type | default | description |", "|---|---|---|---|"]
    for row in rows:
        default = f"`{row.default}`" if row.default else ""
        lines.append(f"| `{row.name}` | {row.type} | {default} | {row.description} |")
    return "\n".join(lines)


def _values(node: Any, lines: list[str], schema: Any, definitions: Any, prefix: str = "") -> Iterator[Value]:
    for key, value in node.value:
        name, line = f"{prefix}{key.value}", key.start_mark.line
        below = schema["properties"][key.value]
        if "$ref" in below:
            below = definitions[below["$ref"].rpartition("/")[2]]
        # The keys of an object are values if each has a comment.
        nested = isinstance(value, yaml.MappingNode) and all(
            _comment(lines, inner.start_mark.line) for inner, _ in value.value
        )
        nested = nested and bool(value.value)
        default = "" if nested else json.dumps(yaml.safe_load(yaml.serialize(value)))
        yield Value(name, _comment(lines, line), _type(below), default)
        if nested:
            yield from _values(value, lines, below, definitions, f"{name}.")


def _comment(lines: list[str], line: int) -> str:
    """Returns the comment that ends directly above a line, as one line."""
    found: list[str] = []
    while line > 0 and lines[line - 1].strip().startswith("#"):
        line -= 1
        found.insert(0, lines[line].strip().removeprefix("#").strip())
    return " ".join(found)


def _type(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return "string"
    kinds = [each["type"] for each in schema.get("oneOf", [schema])]
    return " or ".join(kinds)


if __name__ == "__main__":
    (CHART / "README.md").write_text(render())
