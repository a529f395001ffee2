"""`kubectl rltrain`: kubectl runs the programs that it finds on PATH as `kubectl-<name>`, and asks
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
"""What kubectl wants after the completions: whether names of files are of use as well."""


def main() -> None:
    """Entry point of `kubectl-rltrain`."""
    app(prog_name="kubectl rltrain")


def complete(words: Sequence[str] | None = None) -> None:
    """Entry point of `kubectl_complete-rltrain`: prints what the last of the words may become, a line each."""
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
