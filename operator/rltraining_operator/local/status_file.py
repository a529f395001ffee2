"""status.json: a job with its status, for whoever looks from outside."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)


class StatusFile:
    """A file that holds the newest job, whole at any time. Belongs to one event loop.

    A thread writes it: a disk can take seconds, and who watches pods cannot wait for it. States that come meanwhile are
    passed over for the newest. A full disk must not stop the training: it is told of once.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._newest: dict[str, Any] | None = None
        self._writing: asyncio.Task[None] | None = None
        self._trouble = ""
        self._refused: dict[str, Any] | None = None

    def write(self, job: dict[str, Any]) -> None:
        """Have a job written that nobody changes any more."""
        self._newest = job
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_newest())

    async def close(self) -> None:
        """Return when the last one is written, or was refused once more."""
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
            self._trouble, self._refused = "", None
        except OSError as error:
            self._refused = job
            if str(error) != self._trouble:
                log.warning("cannot write %s: %s", self._path, error)
            self._trouble = str(error)
