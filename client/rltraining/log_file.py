"""Writes the log of a run's engine."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from logging.handlers import RotatingFileHandler
from pathlib import Path

from rltraining_operator.local.log_size import LOG_BYTES_MAX

from rltraining.printable import say
from rltraining.summary import shown

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_current: ContextVar[Path | None] = ContextVar("log file of the run that this task works for", default=None)


@contextmanager
def logging_to(path: Path) -> Iterator[None]:
    """Writes the engine's log messages to a file instead of the terminal, which shows the view.
    Applies to this task and the tasks that it starts. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = LogFile(path, maxBytes=LOG_BYTES_MAX // 2, backupCount=1)
    handler.setFormatter(logging.Formatter(FORMAT))
    handler.addFilter(lambda _: _current.get() == path)
    root, token = logging.getLogger(), _current.set(path)
    for package in ("rltraining", "rltraining_operator"):
        logging.getLogger(package).setLevel(logging.INFO)
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()
        _current.reset(token)


class LogFile(RotatingFileHandler):
    """Keeps the newest lines of a log, and the previous ones in `.1`. Reports a write error only
    once, so that a full disk does not flood the terminal."""

    _reported = False

    def close(self) -> None:
        """Closes the file. Ignores errors of writing, which are already reported and do not change
        the exit code."""
        with suppress(OSError):
            super().close()

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
        elif not self._reported:
            self._reported = True
            name = shown(Path(self.baseFilename))
            say(f"warning: {name} cannot be written: {error.strerror}; the run continues", err=True)
