"""The table that docs/zoo.py writes."""

from __future__ import annotations

import importlib.util
from types import ModuleType

import pytest
from docs_pages import DOCS


@pytest.fixture(scope="module")
def zoo() -> ModuleType:
    """Loads docs/zoo.py."""
    spec = importlib.util.spec_from_file_location("docs_zoo", DOCS / "zoo.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("returns", "cell"), [((0.964,), "| 0.96 |"), ((499.0, 500.0), "| 500 (499 to 500) |")]
)
def test_a_row_of_one_seed_has_no_interval(zoo: ModuleType, returns: tuple[float, ...], cell: str) -> None:
    runs = [{"steps": 101_070, "seconds": 309.7, "greedyReturn": value} for value in returns]
    table = zoo.table({"zoo/minigrid-doorkey-ppo": {"date": "2026-11-29", "runs": runs}})
    assert cell in table
