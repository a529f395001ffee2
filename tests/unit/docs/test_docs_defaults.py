"""The tables of settings in the pages of the algorithms name fields that exist, and their defaults."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from docs_pages import pages
from rltraining_api.crd import crd

COLUMNS = {
    "docs/impala.md": ("impala",),
    "docs/apex.md": ("dqnApex", "ddpgApex"),
    "docs/gradients.md": ("a3c", "a2c", "ppo"),
}
"""Algorithms whose defaults a page's table has, from left to right."""
UNITS = {"k": 1e3, "M": 1e6}
NOT_SET = ("", "–", "the same")


def rows() -> Iterator[tuple[str, str, list[str], list[str]]]:
    """Page, algorithm, names of fields, and what the page says are their defaults."""
    for page, columns in COLUMNS.items():
        table = pages()[page].split("| `spec.algorithm.", 1)[1].split("\n\n", 1)[0]
        for line in table.splitlines()[2:]:
            first, *cells = (cell.strip() for cell in line.strip("|").split("|"))
            names = full(re.findall(r"`([\w.…]+)`", first))
            for algorithm, cell in zip(columns, cells, strict=False):
                if cell not in NOT_SET:
                    yield page, algorithm, names, [word.strip() for word in re.split(r"[;,] ", cell)]


def full(names: list[str]) -> list[str]:
    """`learningRate`, `…Schedule` → `learningRateSchedule`; `replay.placement`, `kind` → `replay.kind`."""
    found: list[str] = []
    for name in names:
        if name.startswith("…"):
            name = found[-1] + name[1:]
        elif found and found[0].startswith("replay.") and "." not in name:
            name = f"replay.{name}"
        found.append(name)
    return found


@cache
def algorithms() -> dict[str, Any]:
    """The schemas of all algorithms."""
    schema = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return dict(schema["properties"]["spec"]["properties"]["algorithm"]["properties"])


def field(algorithm: str, name: str) -> dict[str, Any]:
    """The schema of a field; empty if this algorithm has none of that name."""
    schema = algorithms()[algorithm]
    for key in name.split("."):
        schema = schema["properties"].get(key, {})
        if not schema:
            break
    return dict(schema)


def same(said: str, field: dict[str, Any]) -> bool:
    default = field.get("default")
    if isinstance(default, dict):  # a union: rmsprop: α .99, …
        return said.partition(":")[0] in default
    if said in ("off", "null"):
        return default is None
    if isinstance(default, bool) or default is None:
        return said == str(default).lower()
    if isinstance(default, int | float):
        number, _, unit = said.partition(" ")
        return float(number) * UNITS.get(unit, 1) == default
    return said.casefold() == str(default).casefold()


@pytest.mark.parametrize("page", COLUMNS)
def test_every_setting_in_a_page_exists(page: str) -> None:
    for _, algorithm, names, _ in (row for row in rows() if row[0] == page):
        others = COLUMNS[page]
        for name in names:
            assert any(field(each, name) for each in others), f"{page}: {algorithm} has no {name}"


@pytest.mark.parametrize("page", COLUMNS)
def test_defaults_in_a_page_are_those_of_the_models(page: str) -> None:
    checked = 0
    for _, algorithm, names, said in (row for row in rows() if row[0] == page):
        mine = [name for name in names if field(algorithm, name)]
        values = [word for word in said if word not in NOT_SET]
        if len(mine) != len(values):  # a cell with words that explain
            values = values[:1] if len(mine) == 1 else []
        for name, word in zip(mine, values, strict=False):
            default = field(algorithm, name).get("default")
            assert same(word, field(algorithm, name)), f"{page}: {algorithm}.{name} is {default}, not {word}"
            checked += 1
    assert checked >= 12, f"only {checked} defaults are told in {page}"
