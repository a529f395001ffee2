"""Defines the client's exceptions. Each has a message for users and the exit code of the
command."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of `rltrain`, besides 128 + number for a signal that ended the command (130:
    Ctrl-C)."""

    OK = 0
    FAILED = 1
    """The job failed."""
    USAGE = 2
    """The command or a manifest is invalid, or the job does not exist. Nothing was started."""
    CLUSTER = 3
    """The cluster cannot be reached or denies access, or a wait has timed out."""


class ClientError(Exception):
    """Ends the command. Each of `problems` is a sentence, which may be followed by further lines (a
    traceback)."""

    exit_code: int = Exit.FAILED

    def __init__(self, *problems: str) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


class UsageError(ClientError):
    """The request is invalid. Nothing was started."""

    exit_code = Exit.USAGE
