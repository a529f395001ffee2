"""What the client raises: sentences for people, each with the exit code it ends the command with."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of `rltrain`, besides 128 + number for a signal that ended it (130: Ctrl-C)."""

    OK = 0
    FAILED = 1
    """The job failed."""
    USAGE = 2
    """The command or a manifest cannot be used as it is, or there is no such job; nothing was started."""
    CLUSTER = 3
    """The cluster cannot be reached, does not allow it, or what was waited for did not come in time."""


class ClientError(Exception):
    """Ends the command. Each of `problems` is a sentence, which more lines (a traceback) may follow."""

    exit_code: int = Exit.FAILED

    def __init__(self, *problems: str) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


class UsageError(ClientError):
    """What was asked for cannot be done; nothing was started."""

    exit_code = Exit.USAGE
