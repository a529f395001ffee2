"""What can go wrong with what is written to storage, besides a job that names an impossible place (BadConfiguration)."""

from __future__ import annotations

import errno

from rltraining_api.contract import ExitCode

from rltraining_trainer.errors import TrainerError

_LASTING = frozenset(
    {errno.EBADF, errno.EINVAL, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTDIR}
)


class CheckpointError(Exception):
    """A checkpoint could not be written or read: one sentence. Trying again later may help."""


class StorageRefused(TrainerError):
    """Storage would not take what a finished run leaves, for as long as that was tried: one sentence."""

    exit_code = ExitCode.STORAGE_REFUSED
    reason = "StorageRefused"


def is_transient(error: BaseException | None) -> bool:
    """Whether ``error``, which a file system or an fsspec driver raised, may be gone later: somebody makes room, a network
    comes back. A bug, or a path that cannot be, does not pass."""
    if isinstance(error, OSError):
        return error.errno not in _LASTING
    return error is not None and type(error).__module__ != "builtins"  # a driver's own
