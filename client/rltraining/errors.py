"""What the client raises: sentences for people, each with the exit code it ends the command with."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of `rltrain`, besides 128 + number for a signal that ended it (130: Ctrl-C)."""

    OK = 0
    FAILED = 1
    """The job failed."""
    USAGE = 2
    """The command or a manifest cannot be used as it is; nothing was started."""


class ClientError(Exception):
    """Ends the command. `str` is one sentence per problem, a line each."""

    exit_code: int = Exit.FAILED


class UsageError(ClientError):
    """What was asked for cannot be done; nothing was started."""

    exit_code = Exit.USAGE
