"""`rltrain`, called as from a shell."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path

from rich.console import Console
from rltraining.cli import app
from typer import testing
from typer.testing import CliRunner, Result

# Typer inspects every command again for each call, which took longer than most of the commands.
testing._get_command = cache(testing._get_command)


def rltrain(*arguments: str | Path, stdin: str | None = None) -> Result:
    """Run a command; wide enough that no line is broken."""
    return CliRunner(env={"COLUMNS": "100", "NO_COLOR": "1"}).invoke(
        app, [str(a) for a in arguments], input=stdin
    )


def succeeded(*arguments: str | Path, stdin: str | None = None) -> str:
    """Run a command that succeeds; returns its standard output."""
    result = rltrain(*arguments, stdin=stdin)
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*arguments: str | Path, code: int = 2) -> str:
    """Run a command that does nothing but print one error; returns the error's text."""
    result = rltrain(*arguments)
    assert (result.exit_code, result.stdout) == (code, ""), result.output
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr.removeprefix("error: ").removesuffix("\n")


def drawn(picture: object, width: int = 100) -> str:
    """The text of what rich draws."""
    console = Console(file=io.StringIO(), width=width, color_system=None, legacy_windows=False)
    console.print(picture)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in text.splitlines())
