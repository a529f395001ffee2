"""Checkpoints of the complete state, written atomically and verified when they are read."""

from rltraining_trainer.checkpoint.errors import (
    CheckpointError,
    StorageRefused,
    UnsupportedValue,
    is_transient,
)
from rltraining_trainer.checkpoint.state import restore_rng, rng_state, snapshot
from rltraining_trainer.checkpoint.store import CheckpointStore, load
from rltraining_trainer.checkpoint.writer import CheckpointWriter

__all__ = [
    "CheckpointError",
    "CheckpointStore",
    "CheckpointWriter",
    "StorageRefused",
    "UnsupportedValue",
    "is_transient",
    "load",
    "restore_rng",
    "rng_state",
    "snapshot",
]
