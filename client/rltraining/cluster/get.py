"""Implements `rltrain get`."""

from __future__ import annotations

import json
from typing import Any

import yaml
from rltraining_api.names import GROUP, SINGULAR

from rltraining.printable import one_line, printable, say
from rltraining.sdk.client import RLTrainingClient
from rltraining.sdk.jobs import as_list, own_name
from rltraining.units import aligned


def get(client: RLTrainingClient, name: str, output: str, selector: str, *, everywhere: bool) -> None:
    """Prints one job or all jobs. `output`: `table`, `wide`, `json`, `yaml` or `name`."""
    everywhere = everywhere and not name
    if output in ("table", "wide"):
        table = client.jobs.table(name, selector, everywhere=everywhere)
        if not table.get("rows"):
            where = "any namespace" if everywhere else f"namespace {client.namespace}"
            say(f"no jobs in {where}", err=True)
            return
        say(render(table, wide=output == "wide", namespaces=everywhere))
        return
    jobs = [client.jobs.get(name)] if name else client.jobs.items(selector, everywhere=everywhere)
    if output == "name":
        for job in jobs:
            say(f"{SINGULAR}.{GROUP}/{own_name(job)}")
        return
    for job in jobs:
        (job.get("metadata") or {}).pop("managedFields", None)
    shown: Any = jobs[0] if name else as_list(jobs)
    say(json.dumps(shown, indent=4) + "\n" if output == "json" else _as_yaml(shown), nl=False)


def _as_yaml(shown: Any) -> str:
    """Formats objects as YAML. Keeps characters beyond ASCII unless some must be escaped for a
    terminal."""
    text = yaml.safe_dump(shown, sort_keys=False, allow_unicode=True)
    return text if printable(text) == text else yaml.safe_dump(shown, sort_keys=False)


def render(table: dict[str, Any], *, wide: bool = False, namespaces: bool = False) -> str:
    """Formats a `Table` of an API server as text, with the layout of kubectl."""
    columns = table["columnDefinitions"]
    kept = [i for i, column in enumerate(columns) if wide or not column.get("priority")]
    rows = [[columns[i]["name"].upper() for i in kept]]
    rows += [[_cell(row["cells"][i]) for i in kept] for row in table["rows"]]
    if namespaces:
        spaces = ["NAMESPACE", *(str(row["object"]["metadata"].get("namespace")) for row in table["rows"])]
        rows = [[space, *row] for space, row in zip(spaces, rows, strict=True)]
    return aligned(rows, left=len(rows[0]))


def _cell(value: Any) -> str:
    """Formats a cell. A missing value is empty, as with kubectl."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.10g}"
    return one_line(str(value))
