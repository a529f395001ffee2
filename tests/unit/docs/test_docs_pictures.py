"""Drawings of terminal output by docs/pictures.py."""

from __future__ import annotations

import importlib.util
import re
from io import StringIO
from types import ModuleType

import pytest
from docs_pages import DOCS
from rich.console import Console
from rich.live import Live

ANSI = re.compile(r"\x1b\[[\d;]*m")


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    """Loads docs/pictures.py."""
    spec = importlib.util.spec_from_file_location("docs_pictures", DOCS / "pictures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_stays_of_a_live_view_is_its_last_picture(maker: ModuleType) -> None:
    out = StringIO()
    console = Console(file=out, force_terminal=True, width=40, color_system="truecolor")
    console.print("before")
    with Live(console=console, auto_refresh=False) as live:
        for text in ("one\ntwo\nthree", "[green]four[/]", "five\nsix"):
            live.update(text, refresh=True)
    console.print("after")
    lines = maker.screen(out.getvalue()).splitlines()
    assert [ANSI.sub("", line) for line in lines] == ["before", "five", "six", "after"]


def test_a_picture_shows_the_command_and_fetches_nothing(maker: ModuleType) -> None:
    svg = maker.picture("test", "rltrain run", "\x1b[32mSucceeded\x1b[0m")
    assert "Succeeded" in svg
    assert "font-face" not in svg
    assert svg == maker.picture("test", "rltrain run", "\x1b[32mSucceeded\x1b[0m")


def test_a_recording_is_drawn_with_its_commands_after_a_prompt(maker: ModuleType) -> None:
    lines = maker.session("$ kubectl get rlj\nNAME   PHASE\na[b]   $ 1\n\n$ date\n")
    assert [line.plain for line in lines] == ["$ kubectl get rlj", "NAME   PHASE", "a[b]   $ 1", "", "$ date"]
    assert [bool(line.spans) for line in lines] == [True, False, False, False, True]
    assert "a[b]" in maker.draw("test", lines, "kubectl").replace("&#160;", " ")
