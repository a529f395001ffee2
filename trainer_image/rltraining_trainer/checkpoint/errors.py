"""Errors of storage, except for invalid URIs (BadConfiguration)."""

from __future__ import annotations

import errno

from rltraining_api.contract import ExitCode

from rltraining_trainer.errors import TrainerError

_PERMANENT = frozenset(
    {errno.EBADF, errno.EINVAL, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTDIR}
)


class CheckpointError(Exception):
    """A checkpoint could not be written or read: one sentence. A later attempt may succeed."""


class UnsupportedValue(CheckpointError):
    """A state contains a value that a checkpoint cannot hold: one sentence. A later attempt fails, too."""


class StorageRefused(TrainerError):
    """The results of a finished run could not be stored, despite retries: one sentence."""

    exit_code = ExitCode.STORAGE_REFUSED
    reason = "StorageRefused"


def is_transient(error: BaseException | None) -> bool:
    """Returns whether a retry may help after ``error`` of a file system or an fsspec driver.

    A full disk and a lost network are transient. Bugs and invalid paths are not.
    """
    if isinstance(error, OSError):
        return error.errno not in _PERMANENT
    # Errors of drivers are defined in the drivers' modules.
    return error is not None and type(error).__module__ != "builtins"
