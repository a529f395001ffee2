"""The runs of a sweep, one after another or some at once, all forked from one warm process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from rltraining_operator.local import SharedRuntime, WarmRuntime

from rltraining import workdir
from rltraining.curve import CURVE_FILE
from rltraining.errors import ClientError
from rltraining.jobfile import JobFile, load
from rltraining.log_file import logging_to
from rltraining.observer import STOPPING
from rltraining.session import TRAINER, Interrupt, name_code_folder, train_on
from rltraining.snapshot import Snapshot
from rltraining.sweep.board import OVER, WAITING, Board, Row, row_of, stored_row
from rltraining.sweep.display import SweepDisplay
from rltraining.sweep.folder import RUNTIME_LOG, run_names
from rltraining.sweep.plan import title_of
from rltraining.workdir import JOB_FILE, STATUS_FILE


class Execution:
    """Runs what is not over yet, and knows how all of it stands."""

    def __init__(self, folder: Path, display: SweepDisplay) -> None:
        """Raises UsageError where the folder holds no sweep that can be read."""
        self.signal: int | None = None
        """The one that has stopped it."""
        self.undrawn: list[tuple[Path, Snapshot]] = []
        """What has ended and has no picture of its curve yet: folder and last snapshot."""
        self._folder = folder
        self._display = display
        self._began = time.monotonic()
        self._rows: dict[str, Row] = {}
        self._title = ""
        self._code: Path | None = None
        for name in run_names(folder):
            job = workdir.last_state(folder / name) or load(str(folder / name / JOB_FILE)).job
            self._title = self._title or title_of(job)
            self._code = JobFile(job).code_folder  # all come from one manifest
            self._rows[name] = stored_row(name, job)
            if self._rows[name].phase in OVER and not _is_drawn(folder / name):
                self.undrawn.append((folder / name, Snapshot(job, 0.0)))  # the sweep was killed before that

    @property
    def board(self) -> Board:
        rows = tuple(self._rows.values())
        stops = self.signal is not None and any(row.phase not in (*OVER, WAITING, "Stopped") for row in rows)
        return Board(self._title, rows, time.monotonic() - self._began, STOPPING if stops else "")

    async def run(self, parallel: int) -> None:
        """Until all is over, or a signal has stopped what ran."""
        waiting = iter([name for name, row in self._rows.items() if row.phase not in OVER])
        interrupt = Interrupt(self._display.close)
        name_code_folder(self._code)
        async with _warm(self._folder / RUNTIME_LOG) as runtime:
            await asyncio.gather(*(self._work(waiting, runtime, interrupt) for _ in range(parallel)))
        self.signal = interrupt.number
        self._display.show(self.board)

    async def _work(self, waiting: Iterator[str], runtime: SharedRuntime, interrupt: Interrupt) -> None:
        """One run after another, of those that nobody else has taken."""
        for name in waiting:
            if interrupt.number is not None:
                return
            try:
                await self._one(name, runtime, interrupt)
            except (ClientError, OSError) as error:
                self._show(replace(self._rows[name], phase="Failed", why=str(error)))

    async def _one(self, name: str, runtime: SharedRuntime, interrupt: Interrupt) -> None:
        folder = self._folder / name

        def show(snapshot: Snapshot) -> None:
            self.signal = interrupt.number
            self._show(row_of(name, snapshot))

        with workdir.held(folder, "resume"), logging_to(folder / "logs" / "rltrain.log"):
            file = load(str(folder / JOB_FILE))
            last = await train_on(runtime, interrupt, file, folder, show)
        self.undrawn.append((folder, last))

    def _show(self, row: Row) -> None:
        self._rows[row.name] = row
        self._display.show(self.board)


def _is_drawn(folder: Path) -> bool:
    """Whether the picture of a run that is over shows all of it."""
    picture = folder / CURVE_FILE
    return picture.exists() and picture.stat().st_mtime_ns >= (folder / STATUS_FILE).stat().st_mtime_ns


@asynccontextmanager
async def _warm(log: Path) -> AsyncIterator[SharedRuntime]:
    """What all runs are forked from: torch is imported once."""
    runtime = WarmRuntime(TRAINER)
    await runtime.open(log)
    try:
        yield SharedRuntime(runtime)
    finally:
        await runtime.close()
