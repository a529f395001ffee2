"""docs/install.md speaks of values that exist, and of their defaults."""

from __future__ import annotations

import re
from typing import Any

import pytest
from chart_files import ROOT, chart, schema_of, values

PAGE = (ROOT / "docs" / "install.md").read_text()
ROWS = [
    (re.findall(r"`([\w.]+)`", names), default.strip())
    for names, default in re.findall(r"^\| ([^|]+) \| ([^|]+) \| [^|]+ \|$", PAGE, re.MULTILINE)
    if "`" in names
]


def value(path: str) -> Any:
    found: Any = values()
    for key in path.split("."):
        found = found[key]
    return found


def test_the_table_is_found() -> None:
    assert len(ROWS) > 10


@pytest.mark.parametrize(("names", "default"), ROWS, ids=[names[0] for names, _ in ROWS])
def test_the_tables_defaults_are_those_of_the_chart(names: list[str], default: str) -> None:
    found = [value(name) for name in names]
    said = [word.strip() for word in default.split(",")]
    said = said * len(found) if len(said) == 1 else said
    for one, words in zip(found, said, strict=True):
        if isinstance(one, dict | list):
            assert not re.search(r"\d|true|false", words), f"{names}: {words} is no default of {one}"
        else:
            assert words == (str(one).lower() if isinstance(one, bool) else str(one))


def test_everything_else_that_looks_like_a_value_is_one() -> None:
    set_here = re.findall(r"--set '?([\w.]+)=", PAGE)
    named = [
        name
        for name in re.findall(r"`([a-z]\w+(?:\.\w+)+)(?::[^`]*)?`", PAGE)
        if name.split(".")[0] in values()
    ]
    assert set_here
    assert named
    for name in (*set_here, *named):
        assert schema_of(name), f"docs/install.md names {name}, which is no value of the chart"


def test_the_versions_are_the_charts() -> None:
    oldest = re.search(r">=(\d+\.\d+)", chart()["kubeVersion"])
    assert oldest is not None
    assert f"Kubernetes {oldest[1]} or newer" in PAGE
    assert set(re.findall(r"rltraining-(?:operator|trainer):([\d.]+)", PAGE)) == {chart()["appVersion"]}
