"""Calls `rltrain` as a shell does."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path

from rich.console import Console
from rltraining.cli import app
from typer import testing
from typer.testing import CliRunner, Result

# Cache Typer's inspection of every command in each call, which took longer than most of the commands.
testing._get_command = cache(testing._get_command)


def rltrain(*arguments: str | Path, stdin: str | None = None) -> Result:
    """Runs a command, with an output wide enough that no line breaks."""
    return CliRunner(env={"COLUMNS": "100", "NO_COLOR": "1"}).invoke(
        app, [str(a) for a in arguments], input=stdin
    )


def succeeded(*arguments: str | Path, stdin: str | None = None) -> str:
    """Runs a command that succeeds. Returns its standard output."""
    result = rltrain(*arguments, stdin=stdin)
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*arguments: str | Path, code: int = 2) -> str:
    """Runs a command that only prints one error. Returns the error's text."""
    result = rltrain(*arguments)
    assert (result.exit_code, result.stdout) == (code, ""), result.output
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr.removeprefix("error: ").removesuffix("\n")


def drawn(picture: object, width: int = 100) -> str:
    """Returns rich's rendering as text."""
    console = Console(file=io.StringIO(), width=width, color_system=None, legacy_windows=False)
    console.print(picture)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in text.splitlines())
