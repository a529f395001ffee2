"""Generates parts of the reference from the software. A comment in a page names the part:

<!-- fields: spec.algorithm.impala -->    a table of the fields there, and of those below them
<!-- commands -->                         the help of every command of rltrain
<!-- presets -->                          for each algorithm, a table of the defaults that depend on the task

The text from there to `<!-- end -->` is replaced. Only readers of the file see it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import typer
import typer.main
import yaml
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page
from rltraining.cli import app
from rltraining_api.crd import crd
from rltraining_api.fields import PRESETS
from rltraining_api.preset_values import PRESET_VALUES

MARK = re.compile(
    r"^<!-- (fields|commands|presets)(?:: ([\w.]+))? -->$.*?^<!-- end -->$", re.MULTILINE | re.DOTALL
)
BOUNDS = (
    ("minimum", "≥ {}"),
    ("maximum", "≤ {}"),
    ("minItems", "at least {} items"),
    ("maxItems", "at most {} items"),
    ("maxLength", "at most {} characters"),
)
COLUMNS = 100
"""Width of a command's help."""
ELSEWHERE = {"spec.algorithm": "algorithms.md#spec.algorithm"}
"""Objects with a separate page."""


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    made = {"fields": fields_at, "commands": lambda _: "\n".join(_commands()), "presets": lambda _: presets()}
    return MARK.sub(lambda match: made[match[1]](match[2]), markdown)


def presets() -> str:
    """Returns a heading and a table for each algorithm: the values by preset, with their sources."""
    return "\n".join(line for name in PRESET_VALUES for line in _presets(name))


def fields_at(path: str) -> str:
    """A heading and a table for the object at a path of an RLTrainingJob, and for each object in it."""
    schema = _schema()
    for key in path.split("."):
        schema = schema["properties"][key]
    return "\n".join(_objects(path, schema))


def _presets(algorithm: str) -> Iterator[str]:
    values = PRESET_VALUES[algorithm]
    yield f"\n### `{algorithm}` {{ #{algorithm} }}\n"
    yield f"| field | {' | '.join(PRESETS)} | sources |"
    yield f"|---|{'---|' * len(PRESETS)}---|"
    for path in values[PRESETS[0]]:
        here = [values[preset][path] for preset in PRESETS]
        cells = " | ".join(f"`{_yaml(value)}`" for value, _ in here)
        yield f"| `{path}` | {cells} | {_cell('; '.join(dict.fromkeys(source for _, source in here)))} |"
    yield ""


@cache
def _schema() -> dict[str, Any]:
    return dict(crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"])


def _objects(path: str, schema: dict[str, Any]) -> Iterator[str]:
    yield f"\n### `{path}` {{ #{path} }}\n"
    if text := schema.get("description"):
        yield f"{_cell(text)}\n"
    # Without values, the column would only push the descriptions off the screen of a phone.
    defaults = any(_default(field) for field in schema["properties"].values())
    yield "| field | type | default | meaning |" if defaults else "| field | type | meaning |"
    yield "|---|---|---|---|" if defaults else "|---|---|---|"
    inner = []
    for key, field in schema["properties"].items():
        item = field.get("items", {})
        below = field if "properties" in field else item if "properties" in item else None
        name, where = f"`{key}`", f"{path}.{key}"
        if where in ELSEWHERE:
            name = f"[{name}]({ELSEWHERE[where]})"
        elif below is not None:
            name, inner = f"[{name}](#{where})", [*inner, (where, below)]
        needed = " (required)" if key in schema.get("required", ()) else ""
        default = f" {_default(field)} |" if defaults else ""
        yield f"| {name}{needed} | {_type(field)} |{default} {_cell(field.get('description', ''))} |"
    rules = dict.fromkeys(rule["message"] for rule in schema.get("x-kubernetes-validations", ()))
    yield ""
    # Leave out the rules about immutable fields, because the fields' descriptions have them.
    yield from (f"- {_cell(rule)}" for rule in rules if "is immutable" not in rule)
    for where, below in inner:
        yield from _objects(where, below)


def _type(field: dict[str, Any]) -> str:
    kind = field.get("type", "integer or string" if field.get("x-kubernetes-int-or-string") else "any")
    if kind == "array":
        kind = f"list of {field['items'].get('type', 'any')}"
    if values := field.get("enum"):
        kind = ", ".join(f"`{value}`" for value in values if value is not None)
    bounds = [
        ("> {}" if word == "minimum" and field.get("exclusiveMinimum") else form).format(_number(field[word]))
        for word, form in BOUNDS
        if word in field
    ]
    return "; ".join([kind, *bounds, *(["may be null"] if field.get("nullable") else [])])


def _default(field: dict[str, Any]) -> str:
    if "default" not in field or field["default"] in ({}, []):
        return ""
    return f"`{_yaml(field['default'])}`"


def _yaml(value: Any) -> str:
    """A value on one line of YAML."""
    text: str = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=1000)
    return text.removesuffix("\n").removesuffix("...").strip()


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}".replace("e+0", "e")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _commands() -> Iterator[str]:
    root = typer.main.get_command(app)
    top = typer.Context(root, info_name="rltrain", max_content_width=COLUMNS, terminal_width=COLUMNS)
    yield from _help("rltrain", root, top)
    for name, command in root.commands.items():
        below = typer.Context(
            command, info_name=name, parent=top, max_content_width=COLUMNS, terminal_width=COLUMNS
        )
        yield from _help(f"rltrain {name}", command, below)


def _help(name: str, command: typer.main.TyperCommand, context: typer.Context) -> Iterator[str]:
    yield f"\n## {name}\n\n```text\n{command.get_help(context).strip()}\n```"
