"""`rltrain`, called as from a shell."""

from __future__ import annotations

from pathlib import Path

from rltraining.cli import app
from typer.testing import CliRunner, Result


def rltrain(*arguments: str | Path, stdin: str | None = None) -> Result:
    """Run a command; wide enough that no line is broken."""
    return CliRunner(env={"COLUMNS": "100", "NO_COLOR": "1"}).invoke(
        app, [str(a) for a in arguments], input=stdin
    )
