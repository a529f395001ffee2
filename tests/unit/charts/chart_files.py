"""Reads the chart's files as data. tests/cluster/chart has the tests that need helm."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts" / "rltraining-operator"

Json = dict[str, Any]


@cache
def chart() -> Json:
    return yaml.safe_load((CHART / "Chart.yaml").read_text())


@cache
def values() -> Json:
    return yaml.safe_load((CHART / "values.yaml").read_text())


@cache
def schema() -> Json:
    return json.loads((CHART / "values.schema.json").read_text())


@cache
def alerts() -> tuple[Json, ...]:
    """Returns every alert of every group."""
    groups = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())["groups"]
    return tuple(rule for group in groups for rule in group["rules"])


@cache
def dashboard() -> Json:
    return json.loads((CHART / "files" / "dashboard.json").read_text())


def panels() -> list[Json]:
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def queries() -> list[tuple[str, str]]:
    """Returns the location and text of every PromQL query of the chart."""
    drawn = [
        (f"panel {panel['title']!r}", target["expr"]) for panel in panels() for target in panel["targets"]
    ]
    return [(f"alert {rule['alert']}", rule["expr"]) for rule in alerts()] + drawn
