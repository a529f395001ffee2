"""What can go wrong with checkpoints, each as one sentence for people."""

from __future__ import annotations

import errno

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class CheckpointError(Exception):
    """A checkpoint could not be written or read; trying again later may help."""


class CheckpointConfigurationError(CheckpointError):
    """The job names a place that cannot hold, or does not hold, a checkpoint; trying again cannot help."""


def storage_problem(error: BaseException) -> str:
    """Why the storage refused, as the end of a sentence."""
    if isinstance(error, OSError) and error.errno in _NO_SPACE:
        return "the disk is full"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or type(error).__name__
