"""Records the data of updates, so that `rltrain rerun` can make them again, bit for bit.

The learner's state after an update is a function of its state before and of the update's data: a batch of unrolls,
gradients or transitions, moments of observations, and the end of the schedules. With `spec.recording` a file in the folder
`recording/` begins with a state, and continues with the data of each update. Otherwise only an update that raises Diverged
is kept.
"""

from __future__ import annotations

import hashlib
import logging
import math
import secrets
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from rltraining_api.contract import Warning
from rltraining_api.recording import Recording
from torch import Tensor

from rltraining_trainer.checkpoint import rng_state, snapshot
from rltraining_trainer.dataflow.frames import FrameWriter, bytes_of
from rltraining_trainer.dataflow.gradients import GradientPush, UnrollPush
from rltraining_trainer.dataflow.gradients.accounts import Place
from rltraining_trainer.dataflow.replay import ReplayBatch
from rltraining_trainer.dataflow.trajectory_queue import Source
from rltraining_trainer.errors import Diverged
from rltraining_trainer.world.run_state import RunPaths

FOLDER = "recording"
PATTERN = "[0-9]" * 6 + ".frames"
ENDED = "ended.txt"
"""A file in the same folder, with the reason why the recording has ended."""
FILES = 4
"""The largest size of the folder is divided into at least this many files, the oldest of which is deleted."""

_KINDS: dict[str, Any] = {  # dataclasses and named tuples: __match_args__ are their fields
    kind.__name__: kind for kind in (GradientPush, Place, ReplayBatch, Source, UnrollPush)
}
_LOG = logging.getLogger(__name__)


class Recorder:
    """Records updates: call ``before_update`` and ``after_update`` around each, and ``diverged`` if it raises Diverged.

    No method raises an exception: a run never ends because of its recording.

    Args:
        folder: folder of the run's output.
        job_file: file of the job, without defaults that depend on its environment.
        recording: ``spec.recording``. None: only an update that raises Diverged is kept.
    """

    def __init__(self, folder: Path, job_file: Path, recording: Recording | None) -> None:
        self._folder, self._job_file = folder / FOLDER, job_file
        self._limit = recording.megabytes * 1_000_000 if recording is not None else None
        self._return_drop = recording.return_drop if recording is not None else None
        ended = self._folder / ENDED
        self._ended = ended.read_text() if recording is not None and ended.exists() else ""
        self._best = -math.inf  # the best mean return since this process started
        self._incarnation = secrets.token_hex(8)
        self._file: FrameWriter | None = None
        self._path = Path()
        self._number = 0  # number of the newest update in the file
        self._failure = ""
        # Data of the update in progress, if only updates that diverge are kept. The state is copied only if the update
        # may consist of several, of which the last one may diverge.
        self._last: tuple[Any, dict[str, Any]] | None = None
        self._state: dict[str, Any] | None = None
        self._updates = -2  # updates before the last call of `before_update`

    def before_update(self, paths: RunPaths, batch: Any, total_steps: int | None) -> None:
        """Keeps the data of the next update."""
        if self._failure:
            return
        try:
            facts = {"total_steps": total_steps, "moments": list(paths.moments), **paths.facts()}
            if self._keeps_failures_only:
                self._remember(paths, batch, facts)
            else:
                self._write(paths, batch, facts)
        except Exception as error:
            self._fail(error)

    def after_update(self, paths: RunPaths, *, is_complete: bool) -> None:
        """Keeps a hash of the state. ``is_complete``: no signal has cut the update short."""
        self._last = self._state = None
        if self._failure or self._keeps_failures_only or self._file is None or not is_complete:
            return
        try:
            algorithm = paths.algorithm
            found = {"update": self._number, "updates": algorithm.updates}
            self._file.write({"kind": "after", **found, "digest": digest(algorithm.get_state())})
        except Exception as error:
            self._fail(error)

    def diverged(self, paths: RunPaths, error: Diverged) -> None:
        """Keeps the update that raised ``error``, and its message."""
        if self._failure:
            return
        try:
            if self._keeps_failures_only:
                self._keep_last(paths)
            if self._file is not None:
                self._file.write({"kind": "error", "update": self._number, "text": str(error)})
                _LOG.warning("%s has the data of this update: rltrain rerun makes it again", self._path)
        except Exception as problem:
            self._fail(problem)

    def check_return(self, mean_return: float | None) -> None:
        """Ends the recording if the return has dropped by ``recording.returnDrop`` since this process started."""
        if self._return_drop is None or mean_return is None or self._failure or self._ended:
            return
        self._best = max(self._best, mean_return)
        if mean_return > self._best - self._return_drop:
            return
        newest = f"Its newest update is number {self._number}" if self._file is not None else "It is empty"
        returns = f"the mean return is {mean_return:.6g}, and was {self._best:.6g} before"
        self._ended = f"the recording has ended: {returns}. {newest}"
        _LOG.warning("%s", self._ended)
        self.close()
        self._file = None
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            (self._folder / ENDED).write_text(self._ended)
        except OSError as error:
            self._fail(error)

    def close(self) -> None:
        if self._file is not None:
            with suppress(OSError):  # the disk is full, which was reported
                self._file.close()

    def warnings(self) -> Iterator[Warning]:
        if self._failure:
            yield Warning(reason="RecordingNotWritten", message=self._failure)
        elif self._ended:
            yield Warning(reason="RecordingEnded", message=self._ended)

    @property
    def _keeps_failures_only(self) -> bool:
        return self._limit is None or bool(self._ended)

    def _remember(self, paths: RunPaths, batch: Any, facts: dict[str, Any]) -> None:
        """Keeps the data in memory."""
        algorithm = paths.algorithm
        several, self._updates = algorithm.updates - self._updates != 1, algorithm.updates
        self._state = snapshot(algorithm.get_state()) if several else None
        # Copying the states of all generators takes 50 µs, torch's alone 1 µs.
        rng: dict[str, Any] = {"torch": torch.get_rng_state()}
        if torch.cuda.is_initialized():
            rng["cuda"] = torch.cuda.get_rng_state_all()
        self._last = batch, {**facts, "rng": rng, "update": algorithm.updates}

    def _keep_last(self, paths: RunPaths) -> None:
        """Writes the data in memory, if the state before the update is known."""
        if self._last is None:
            return
        (batch, facts), algorithm, state = self._last, paths.algorithm, self._state
        if state is None:
            if algorithm.updates != facts["update"]:
                _LOG.warning("the update that diverged is not kept: it was not the first one of its batch")
                return
            # The update has not changed the parameters, but may have merged the moments.
            state, facts["moments"] = snapshot(algorithm.get_state()), []
        self._open(state, rng_state() | facts.pop("rng"), facts["update"])
        self._add(batch, facts)

    def _write(self, paths: RunPaths, batch: Any, facts: dict[str, Any]) -> None:
        """Writes the data to a file, and starts a new file if one is due."""
        assert self._limit is not None
        algorithm = paths.algorithm
        is_first = facts.get("is_first_of_rollout", True)
        if self._file is None or (is_first and self._file.size >= self._limit / FILES):
            self._open(snapshot(algorithm.get_state()), rng_state(), algorithm.updates)
        assert self._file is not None
        if self._file.size > 2 * self._limit:
            raise OSError("the updates from one rollout exceed twice recording.megabytes")
        self._add(batch, {**facts, "update": algorithm.updates})

    def _open(self, state: dict[str, Any], rng: dict[str, Any], update: int) -> None:
        """Begins a file with a state, and deletes the oldest files."""
        self.close()
        self._folder.mkdir(parents=True, exist_ok=True)
        files = sorted(self._folder.glob(PATTERN))
        number = int(files[-1].stem) + 1 if files else 1
        self._path = self._folder / f"{number:06}.frames"
        self._file = FrameWriter(self._path)
        self._file.write(
            {
                "kind": "state",
                "incarnation": self._incarnation,
                "job": self._job_file.read_text(encoding="utf-8"),
                "update": update,
                "state": state,
                "rng": rng,
                "threads": torch.get_num_threads(),
            }
        )
        if self._limit is None or self._ended:
            return
        # Keep one share of the limit free, by which the new file may grow.
        left = self._limit * (1 - 1 / FILES) - self._file.size
        for path in reversed(files):
            left -= path.stat().st_size
            if left < 0:
                path.unlink()

    def _add(self, batch: Any, facts: Mapping[str, Any]) -> None:
        assert self._file is not None
        self._number = facts["update"]
        self._file.write({"kind": "update", **facts, "batch": to_plain(batch)})

    def _fail(self, error: Exception) -> None:
        self.close()
        self._failure = f"the data of updates is not recorded any more: {error}"
        _LOG.warning("%s", self._failure)


def digest(state: Mapping[str, Any]) -> str:
    """Returns a hash of a state of tensors and plain values."""
    found = hashlib.sha256()

    def add(value: Any) -> None:
        found.update(type(value).__name__.encode())
        if isinstance(value, Tensor):
            found.update(f"{value.dtype} {list(value.shape)} ".encode())
            found.update(bytes_of(value))
        elif isinstance(value, Mapping):
            for key in sorted(value, key=str):
                add(key)
                add(value[key])
        elif isinstance(value, list | tuple):
            found.update(f"{len(value)} ".encode())
            for item in value:
                add(item)
        else:
            found.update(f"{value!r} ".encode())

    add(state)
    return found.hexdigest()


def to_plain(value: Any) -> Any:
    """Returns a batch as plain values and tensors. Raises TypeError for objects of other classes."""
    if (name := type(value).__name__) in _KINDS:
        own = {field: getattr(value, field) for field in value.__match_args__}
        if isinstance(value, ReplayBatch):
            own["shards"] = ()  # shards only receive priorities, which change no state of the learner
        return {"class": name, "fields": to_plain(own)}
    if isinstance(value, dict):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(to_plain, value))
    return value.detach().cpu() if isinstance(value, Tensor) else value


def from_plain(value: Any) -> Any:
    """Inverts ``to_plain``."""
    if isinstance(value, dict):
        if value.keys() == {"class", "fields"}:
            return _KINDS[value["class"]](**from_plain(value["fields"]))
        return {key: from_plain(item) for key, item in value.items()}
    return type(value)(map(from_plain, value)) if isinstance(value, list | tuple) else value
