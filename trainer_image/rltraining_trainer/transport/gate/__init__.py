"""Loads the compiled gate of the RPC port, gate.cpp, if there is one.

python -m rltraining_trainer.transport.gate             # compiles it into the user's cache folder
python -m rltraining_trainer.transport.gate --package   # compiles it for an image, beside the source
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
from pathlib import Path
from types import ModuleType

import torch
from rltraining_api.contract import ENV_TERMINATION_LOG, ExitCode, TerminationMessage

from rltraining_trainer.transport.gate.build import FILE, SOURCE, import_from

FOREIGN_BYTES = TerminationMessage(
    reason="ForeignBytes",
    message="bytes that are not torch RPC's reached the RPC port and ended the process: "
    "a port scanner, or a probe or scrape of the wrong port; a NetworkPolicy keeps other clients away",
)
"""The termination message of a process that TensorPipe ends."""

_LOG = logging.getLogger(__name__)


@functools.cache
def load() -> ModuleType | None:
    """Returns the compiled gate beside its source, or the one in the cache. Returns None if there is neither."""
    for path in (SOURCE.with_name(FILE), cached()):
        if not path.exists():
            continue
        try:
            return import_from(path)
        except ImportError as error:  # compiled for another torch
            _LOG.warning("%s cannot be loaded: %s", path, error)
    return None


def end_in_order(gate: ModuleType) -> None:
    """Makes a crash of TensorPipe end the process with ExitCode.FOREIGN_BYTES and a termination message."""
    path = os.environ.get(ENV_TERMINATION_LOG, "")
    gate.on_foreign_bytes(path, FOREIGN_BYTES.model_dump_json(exclude_none=True), ExitCode.FOREIGN_BYTES)


def cached() -> Path:
    """Returns the gate's path in this user's cache folder. It is unique to the source and the version of torch."""
    digest = hashlib.sha256(f"{torch.__version__} {SOURCE.read_text()}".encode()).hexdigest()[:16]
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache, "rltraining", digest, FILE)
