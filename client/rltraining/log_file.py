"""The log of a run's engine."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import typer

from rltraining.summary import shown


class LogFile(logging.FileHandler):
    """Says once that it cannot be written: a full disk must not fill the terminal too."""

    _told = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
        elif not self._told:
            self._told = True
            name = shown(Path(self.baseFilename))
            typer.echo(f"warning: {name} cannot be written: {error.strerror}; the run goes on", err=True)
