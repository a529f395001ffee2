"""How a run can fail for good: each error says which exit code the process ends with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rltraining_api.contract import ExitCode

from rltraining_trainer.user_trace import user_trace

LINE_MAX = 500
"""Characters of a line of what user code says."""


class TrainerError(Exception):
    """Restarting cannot help; the job fails with this message in its status."""

    exit_code = ExitCode.BAD_CONFIGURATION
    reason = "BadConfiguration"


class BadConfiguration(TrainerError):
    """The job cannot run as it is written: one sentence that names the field and the remedy."""


class UserCodeError(TrainerError):
    """Code of the user's could not be imported, or raised: one sentence, then its traceback."""

    exit_code = ExitCode.USER_CODE
    reason = "UserCodeError"


class EnvironmentRaised(UserCodeError):
    """Raised when an environment's ``reset`` or ``step`` raised an exception."""


class EnvironmentLost(Exception):
    """Raised when the process of an environment has ended, for example by a native crash."""


class Diverged(TrainerError):
    """NaN or infinity in the loss: no further step can mend it."""

    exit_code = ExitCode.DIVERGED
    reason = "Diverged"


def user_code_error(what: str, error: BaseException) -> TrainerError:
    """``error``, which the user's code raised while ``what``, as one of ours: what it says and where, then its traceback.

    Raises it again if it is a Ctrl-C.
    """
    if isinstance(error, TrainerError):
        return error
    if isinstance(error, KeyboardInterrupt):
        raise error
    where, trace = user_trace(error)
    place = f" ({where})" if where else ""
    lines = "\n".join(map(_cut, trace.splitlines()))
    return UserCodeError(f"{what} raised {one_line(error)}{place}\n{lines}\n")


def text_of(error: BaseException) -> str:
    """What ``error`` says; of one that cannot say it, the words that its traceback has."""
    try:
        return str(error)
    except BaseException:  # as the traceback does
        return "<exception str() failed>"


def one_line(error: BaseException) -> str:
    """Type and message of ``error``, without the further lines and notes that its message may have, or what is too long."""
    message = text_of(error).strip().splitlines()
    return f"{type(error).__qualname__}: {_cut(message[0])}" if message else type(error).__qualname__


def _cut(line: str) -> str:
    """Of an array, or a whole document, in a message, so much that the place where it was raised is still seen."""
    return line if len(line) <= LINE_MAX else f"{line[: LINE_MAX - 3]}..."


@contextmanager
def user_code(what: str) -> Iterator[None]:
    """Turn whatever the user's code raises inside into a UserCodeError, ``sys.exit()`` and panics of Rust too."""
    try:
        yield
    except BaseException as error:
        raise user_code_error(what, error) from error
