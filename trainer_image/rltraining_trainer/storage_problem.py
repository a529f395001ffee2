"""Why storage refused, for people."""

from __future__ import annotations

import errno

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def storage_problem(error: BaseException) -> str:
    """``error``, which a file system or an fsspec driver raised, as the end of a sentence."""
    if isinstance(error, OSError) and error.errno in _NO_SPACE:
        return "the disk is full"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or type(error).__name__
