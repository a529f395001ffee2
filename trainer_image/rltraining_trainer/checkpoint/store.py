"""Checkpoints in a directory or an object store, of which the newest N are kept.

    <uri>/step-000000123456/state.pt         the state, written by torch.save
    <uri>/step-000000123456/complete.json    size and checksum of the state, written last

A second checkpoint at the same step, after resuming from before a damaged one, is named
``step-000000123456-2``. Complete checkpoints are never overwritten.
"""

from __future__ import annotations

import hashlib
import io
import logging
import pickle
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import torch
from pydantic import AwareDatetime, BaseModel, ValidationError
from rltraining_api.status import CheckpointStatus

from rltraining_trainer.checkpoint.errors import CheckpointError
from rltraining_trainer.checkpoint.storage import Storage, open_storage
from rltraining_trainer.errors import BadConfiguration, TrainerError, storage_problem

_STATE = "state.pt"
_COMPLETE = "complete.json"
_NAME = re.compile(r"step-(\d{12,})(?:-(\d+))?")
_LOG = logging.getLogger(__name__)


class _Manifest(BaseModel):
    """The content of complete.json."""

    format: Literal[1]
    step: int
    time: AwareDatetime
    size: int
    sha256: str


class _Damaged(Exception):
    """A checkpoint is damaged. The message completes a sentence."""


@dataclass(frozen=True)
class Loaded:
    """A loaded checkpoint."""

    step: int
    state: dict[str, Any]
    uri: str
    skipped: tuple[str, ...] = ()
    """One sentence for each newer checkpoint that was skipped as damaged or incomplete."""


class CheckpointStore:
    """The checkpoints of one run. Raises CheckpointError if storage fails."""

    skipped: tuple[str, ...] = ()
    """One sentence for each checkpoint that the last ``load_newest`` skipped."""

    keep: int
    """How many of the newest checkpoints to keep. A change applies from the next ``save``."""

    def __init__(self, uri: str, keep: int) -> None:
        """Opens a path or fsspec URI, where the newest ``keep`` (at least 1) checkpoints are kept.

        Raises BadConfiguration if no driver for the URI is installed.
        """
        self._storage = open_storage(uri)
        self.keep = keep
        # Checkpoints that seemed complete but are damaged.
        self._damaged: set[str] = set()

    def save(self, step: int, state: dict[str, Any]) -> CheckpointStatus:
        """Writes a ``snapshot`` and deletes old checkpoints."""
        # Serialize the state.
        buffer = io.BytesIO()
        torch.save(state, buffer)
        content = buffer.getbuffer()
        manifest = _Manifest(
            format=1,
            step=step,
            time=datetime.now(UTC),
            size=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
        )
        # Publish it with its checksum.
        with _translate_errors(
            f"the checkpoint at step {step:,} could not be written to {self._storage.uri()}"
        ):
            name = _new_name(step, self._storage.directories())
            with self._storage.publish(name) as open_new:
                with open_new(_STATE) as file:
                    file.write(content)
                with open_new(_COMPLETE) as file:
                    file.write(manifest.model_dump_json(indent=1).encode())
        self._prune(saved=name)
        return _status(self._storage, name, manifest)

    def newest(self) -> CheckpointStatus | None:
        """Returns the newest complete checkpoint, without verifying its checksum."""
        with _translate_errors(f"the checkpoints at {self._storage.uri()} could not be listed"):
            for name, manifest in self._complete():
                return _status(self._storage, name, manifest)
        return None

    def load_newest(self) -> Loaded | None:
        """Returns the newest checkpoint that is not damaged, or None.

        Raises CheckpointError if the storage cannot be read, because the run must not start over
        then.
        """
        self.skipped = ()
        with _translate_errors(f"the checkpoints at {self._storage.uri()} could not be read"):
            for name in _newest_first(self._storage):
                try:
                    return _read(self._storage, name, self.skipped)
                except _Damaged as reason:
                    self._damaged.add(name)
                    self.skipped += (f"checkpoint {self._storage.uri(name)} was skipped: {reason}",)
        return None

    def _complete(self) -> Iterator[tuple[str, _Manifest]]:
        """Yields the complete checkpoints, newest first."""
        for name in _newest_first(self._storage):
            with suppress(_Damaged):
                manifest = _manifest(self._storage, name)
                if name not in self._damaged:
                    yield name, manifest

    def _prune(self, saved: str) -> None:
        """Deletes old and incomplete checkpoints. Logs errors, which cost only disk space."""
        try:
            older = [name for name, _ in self._complete() if name != saved]
            keep = {saved, *older[: self.keep - 1]}
            for name in self._storage.directories():
                if _NAME.fullmatch(name) and name not in keep:
                    self._storage.remove(name)
        except Exception as error:
            _LOG.warning(
                "old checkpoints at %s could not be deleted: %s", self._storage.uri(), storage_problem(error)
            )


def load(uri: str) -> Loaded:
    """Loads the checkpoint at ``uri``, or the newest one if it is a directory of checkpoints.

    Raises BadConfiguration if there is no undamaged checkpoint, and CheckpointError if storage
    fails.
    """
    store = CheckpointStore(uri, keep=1)
    storage = open_storage(uri)
    with _translate_errors(f"checkpoint {uri} could not be read"):
        try:
            storage.size("", _COMPLETE)
        except FileNotFoundError:
            loaded = store.load_newest()
        else:
            try:
                return _read(storage, "")
            except _Damaged as reason:
                raise BadConfiguration(f"checkpoint {uri} is damaged: {reason}") from None
    if loaded is None:
        passed_over = "".join(f"; {sentence}" for sentence in store.skipped)
        raise BadConfiguration(f"there is no checkpoint to resume from at {uri}{passed_over}")
    return loaded


def _read(storage: Storage, name: str, skipped: tuple[str, ...] = ()) -> Loaded:
    manifest = _manifest(storage, name)
    content = storage.read(name, _STATE)
    if hashlib.sha256(content).hexdigest() != manifest.sha256:
        raise _Damaged(f"the content of {_STATE} differs from what was written")
    try:
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except (RuntimeError, ValueError, pickle.UnpicklingError) as error:
        raise _Damaged(
            f"{_STATE} cannot be read by torch {torch.__version__} ({type(error).__name__})"
        ) from error
    return Loaded(manifest.step, state, storage.uri(name), skipped)


def _manifest(storage: Storage, name: str) -> _Manifest:
    """Returns the content of complete.json, after a check of the state's size."""
    try:
        manifest = _Manifest.model_validate_json(storage.read(name, _COMPLETE))
        size = storage.size(name, _STATE)
    except FileNotFoundError:
        raise _Damaged("it was not written to its end") from None
    except ValidationError:
        raise _Damaged(f"its {_COMPLETE} is damaged, or of another version") from None
    if size != manifest.size:
        raise _Damaged(f"{_STATE} has {size} bytes, not {manifest.size}")
    return manifest


def _status(storage: Storage, name: str, manifest: _Manifest) -> CheckpointStatus:
    return CheckpointStatus(uri=storage.uri(name), step=manifest.step, time=manifest.time)


def _newest_first(storage: Storage) -> list[str]:
    """Returns the names of all checkpoints, sorted by step and attempt."""
    names = [name for name in storage.directories() if _NAME.fullmatch(name)]
    return sorted(names, key=_order, reverse=True)


def _order(name: str) -> tuple[int, int]:
    match = _NAME.fullmatch(name)
    assert match
    return int(match[1]), int(match[2] or 1)


def _new_name(step: int, taken: list[str]) -> str:
    first = f"step-{step:012d}"
    attempts = [_order(name)[1] for name in taken if _NAME.fullmatch(name) and _order(name)[0] == step]
    return f"{first}-{max(attempts) + 1}" if attempts else first


@contextmanager
def _translate_errors(sentence: str) -> Iterator[None]:
    """Converts errors of storage to a CheckpointError that starts with ``sentence``."""
    try:
        yield
    except (CheckpointError, TrainerError):
        raise
    except Exception as error:
        raise CheckpointError(f"{sentence}: {storage_problem(error)}") from error
