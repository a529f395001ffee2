"""Writes status.json, a job with its status, for other programs."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)


class StatusFile:
    """A file with the newest job, which readers always see complete. Belongs to one event loop.

    A thread writes the file, because a disk can take seconds and the event loop must not block. If
    several states are written meanwhile, only the newest is used. A full disk must not stop the
    training, so it is logged once.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._newest: dict[str, Any] | None = None
        self._writing: asyncio.Task[None] | None = None
        self._last_error = ""
        self._refused: dict[str, Any] | None = None

    def write(self, job: dict[str, Any]) -> None:
        """Schedules the write of a job that is not modified any more."""
        self._newest = job
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_newest())

    async def close(self) -> None:
        """Returns when the last job is written, or has failed again."""
        if self._writing is not None:
            await self._writing
        if self._refused is not None:
            await asyncio.to_thread(self._replace, self._refused)

    async def _write_newest(self) -> None:
        while (job := self._newest) is not None:
            self._newest = None
            await asyncio.to_thread(self._replace, job)

    def _replace(self, job: dict[str, Any]) -> None:
        fresh = self._path.with_suffix(".json.new")
        try:
            fresh.write_text(json.dumps(job, indent=1) + "\n")
            fresh.replace(self._path)
            self._last_error, self._refused = "", None
        except OSError as error:
            self._refused = job
            if str(error) != self._last_error:
                log.warning("cannot write %s: %s", self._path, error)
            self._last_error = str(error)
