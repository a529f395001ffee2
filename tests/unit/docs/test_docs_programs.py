"""Runs the complete Python programs of pages: the blocks of each page in their order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.docs_pages import blocks


def run_page(page: str) -> dict[str, Any]:
    """Runs a page's blocks. Returns the names that they define."""
    names: dict[str, Any] = {}
    programs = [block for block in blocks("python") if block.page == page]
    assert programs, f"{page} has no program"
    for block in programs:
        exec(compile(block.text, str(block), "exec"), names)
    return names


def test_the_program_of_the_replay_page_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = run_page("docs/replay-library.md")
    assert names["q"].argmax(1).tolist() == [1] * 8
    assert names["replay"].stats().samples_per_insert == pytest.approx(8, rel=0.2)
