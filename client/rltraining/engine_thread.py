"""The engine of a run in a thread."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue

from rltraining_operator.local import WarmRuntime

from rltraining.jobfile import JobFile
from rltraining.log_file import logging_to
from rltraining.session import TRAINER, StopRequest, name_code_folder, train_on
from rltraining.snapshot import Snapshot


class EngineThread(threading.Thread):
    """Runs the engine in a separate event loop, since the event loop of a notebook is already running."""

    def __init__(self, file: JobFile, folder: Path) -> None:
        super().__init__(name="rltraining engine", daemon=True)
        self._snapshots: SimpleQueue[Snapshot | None] = SimpleQueue()  # None after the last one
        self._over = False
        self._file, self._folder = file, folder
        self._ready = threading.Event()
        self._last: Snapshot | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            with logging_to(self._folder / "logs" / "rltrain.log"):
                self._last = asyncio.run(self._train())
        except BaseException as error:  # is raised by `result`
            self._error = error
        finally:
            self._ready.set()
            self._snapshots.put(None)

    def next_snapshot(self) -> Snapshot | None:
        """Blocks until there is a snapshot. Returns None after the last one."""
        if self._over:
            return None
        snapshot = self._snapshots.get()
        self._over = snapshot is None
        return snapshot

    def is_newest(self) -> bool:
        """Returns whether nothing has followed the snapshot that `next_snapshot` returned last."""
        return self._snapshots.empty()

    def stop(self, number: int) -> None:
        """Asks the run to stop in order."""
        self._ready.wait()
        with suppress(RuntimeError):  # the loop is closed: the run is over
            self._loop.call_soon_threadsafe(self._request.ask, number)

    def kill(self) -> None:
        """Kills the run's processes."""
        self._ready.wait()
        with suppress(RuntimeError):  # the loop is closed: the run is over
            self._loop.call_soon_threadsafe(self._kill_processes)
        self.join()

    def result(self) -> Snapshot:
        """Returns the last snapshot, or raises the exception that ended the engine."""
        self.join()
        if self._error is not None:
            raise self._error
        assert self._last is not None
        return self._last

    async def _train(self) -> Snapshot:
        self._loop, self._request = asyncio.get_running_loop(), StopRequest()
        self._runtime = WarmRuntime(TRAINER)
        self._ready.set()
        name_code_folder(self._file.code_folder)
        return await train_on(self._runtime, self._request, self._file, self._folder, self._snapshots.put)

    def _kill_processes(self) -> None:
        self._killing = asyncio.create_task(self._runtime.close())
