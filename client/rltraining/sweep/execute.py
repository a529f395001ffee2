"""Runs the jobs of a sweep, in sequence or in parallel, all forked from one warm process."""

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
from rltraining.session import STOPPING, TRAINER, Interrupt, name_code_folder, train_on
from rltraining.snapshot import Snapshot
from rltraining.sweep import stop_rules
from rltraining.sweep.display import SweepDisplay
from rltraining.sweep.folder import RUNTIME_LOG, run_names
from rltraining.sweep.plan import title_of
from rltraining.sweep.snapshot import OVER, WAITING, Row, SweepSnapshot, row_of, stored_row
from rltraining.workdir import JOB_FILE, STATUS_FILE


class Execution:
    """Runs the jobs that are not over yet, and records the state of all."""

    def __init__(self, folder: Path, display: SweepDisplay) -> None:
        """Raises UsageError if the folder contains no valid sweep."""
        self.signal: int | None = None
        """The signal that stopped the sweep."""
        self.undrawn: list[tuple[Path, Snapshot]] = []
        """Folder and last snapshot of ended runs whose curve is not drawn yet."""
        self._folder = folder
        self._display = display
        self._began = time.monotonic()
        self._rows: dict[str, Row] = {}
        self._title = ""
        self._code: Path | None = None
        for name in run_names(folder):
            job = workdir.last_state(folder / name) or load(str(folder / name / JOB_FILE)).job
            self._title = self._title or title_of(job)
            self._code = JobFile(job).code_folder  # the same for all runs, which have one manifest
            continues = job.status.phase == "Succeeded" and stop_rules.continues(
                job, load(str(folder / name / JOB_FILE)).job
            )
            self._rows[name] = stored_row(name, job, continues=continues)
            if self._rows[name].phase in OVER and not _is_drawn(folder / name):
                # The sweep was killed before drawing it.
                self.undrawn.append((folder / name, Snapshot(job, 0.0)))

    @property
    def snapshot(self) -> SweepSnapshot:
        rows = tuple(self._rows.values())
        stops = self.signal is not None and any(row.phase not in (*OVER, WAITING, "Stopped") for row in rows)
        return SweepSnapshot(self._title, rows, time.monotonic() - self._began, STOPPING if stops else "")

    async def run(self, parallel: int, nice: int = 0) -> None:
        """Runs until all jobs are over, or a signal has stopped the running ones. `nice` lowers the
        CPU priority of their processes."""
        waiting = iter([name for name, row in self._rows.items() if row.phase not in OVER])
        interrupt = Interrupt(self._display.close)
        name_code_folder(self._code)
        async with _warm(self._folder / RUNTIME_LOG, nice) as runtime:
            await asyncio.gather(*(self._work(waiting, runtime, interrupt) for _ in range(parallel)))
        self.signal = interrupt.number
        self._display.show(self.snapshot)

    async def _work(self, waiting: Iterator[str], runtime: SharedRuntime, interrupt: Interrupt) -> None:
        """Runs jobs that no other worker has taken, one after another."""
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
        self._display.show(self.snapshot)


def _is_drawn(folder: Path) -> bool:
    """Returns whether the drawing of an ended run is up to date."""
    picture = folder / CURVE_FILE
    return picture.exists() and picture.stat().st_mtime_ns >= (folder / STATUS_FILE).stat().st_mtime_ns


@asynccontextmanager
async def _warm(log: Path, nice: int) -> AsyncIterator[SharedRuntime]:
    """Provides the runtime from which all runs are forked, so that torch is imported once."""
    runtime = WarmRuntime(TRAINER, nice)
    await runtime.open(log)
    try:
        yield SharedRuntime(runtime)
    finally:
        await runtime.close()
