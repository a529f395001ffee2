"""Implements `kubectl rltrain`: kubectl runs programs named `kubectl-<name>` on PATH, and
`kubectl_complete-<name>` for completions."""

from __future__ import annotations

import io
import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress

from rltraining.cli import app

FILES, NO_FILES = ":0", ":4"
"""Directives for kubectl after the completions: whether file names are completed, too."""


def main() -> None:
    """Runs the command. Entry point of `kubectl-rltrain`."""
    app(prog_name="kubectl rltrain")


def complete(words: Sequence[str] | None = None) -> None:
    """Prints the completions of the last word, one per line. Entry point of
    `kubectl_complete-rltrain`."""
    words = sys.argv[1:] if words is None else words
    os.environ |= {
        "COMP_WORDS": shlex.join(["rltrain", *words]),
        "COMP_CWORD": str(len(words)),
        "_RLTRAIN_COMPLETE": "complete_bash",
    }
    with redirect_stdout(io.StringIO()) as out, suppress(SystemExit):
        app(prog_name="rltrain")
    found = out.getvalue().split()
    print("\n".join([*found, NO_FILES if found else FILES]))
