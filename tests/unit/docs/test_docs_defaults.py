"""The tables of settings in the algorithms' pages name existing fields and their defaults."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from docs_pages import pages
from rltraining_api.crd import crd
from rltraining_api.preset_values import PRESET_VALUES

COLUMNS = {
    "docs/impala.md": ("impala",),
    "docs/apex.md": ("dqnApex", "ddpgApex"),
    "docs/r2d2.md": ("r2d2",),
    "docs/sac.md": ("sac",),
    "docs/td3.md": ("td3",),
    "docs/gradients.md": ("a3c", "a2c", "ppo"),
}
"""The algorithms in the table of defaults of each page, from left to right."""
UNITS = {"k": 1e3, "M": 1e6}
NOT_SET = ("", "–", "the same")


def rows(page: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yields an algorithm, names of fields, and their defaults on the page."""
    table = pages()[page].split("| `spec.algorithm.", 1)[1].split("\n\n", 1)[0]
    for line in table.splitlines()[2:]:
        first, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        names = full(re.findall(r"`([\w.…]+)`", first))
        for algorithm, cell in zip(COLUMNS[page], cells, strict=False):
            if cell not in NOT_SET:
                yield algorithm, names, [word.strip() for word in re.split(r"[;,] ", cell)]


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
def fields() -> dict[str, dict[str, Any]]:
    """Returns the schemas of all settings, by their path from the algorithm: `dqnApex.replay.kind`.

    Where the default depends on the task, the schema has the default for Atari.
    """
    schema = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    found = dict(below(schema["properties"]["spec"]["properties"]["algorithm"], ""))
    for algorithm, presets in PRESET_VALUES.items():
        for path, (value, _) in presets["Atari"].items():
            if f"{algorithm}.{path}" in found:
                found[f"{algorithm}.{path}"] |= {"default": value}
    return found


def below(schema: dict[str, Any], prefix: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for key, inner in schema.get("properties", {}).items():
        yield f"{prefix}{key}", inner
        yield from below(inner, f"{prefix}{key}.")


def same(said: str, default: Any) -> bool:
    if isinstance(default, dict):  # a union: rmsprop: α .99, …
        return said.partition(":")[0] in default
    if default is None or isinstance(default, bool | str):
        return said.casefold() in ({"off", "null"} if default is None else {str(default).casefold()})
    number, _, unit = said.partition(" ")
    return float(number) * UNITS.get(unit, 1) == default


@pytest.mark.parametrize("page", COLUMNS)
def test_settings_in_a_page_exist_and_have_the_defaults_of_the_models(page: str) -> None:
    checked = 0
    for algorithm, names, said in rows(page):
        for name in names:
            assert any(f"{each}.{name}" in fields() for each in COLUMNS[page]), f"{page}: there is no {name}"
        mine = [path for name in names if (path := f"{algorithm}.{name}") in fields()]
        values = [word for word in said if word not in NOT_SET]
        if len(mine) != len(values):  # a cell with an explanation in words
            values = values[:1] if len(mine) == 1 else []
        for path, word in zip(mine, values, strict=False):
            default = fields()[path].get("default")
            assert same(word, default), f"{page}: {path} is {default}, not {word}"
            checked += 1
    assert checked >= 12, f"{page}: only {checked} defaults were found"
