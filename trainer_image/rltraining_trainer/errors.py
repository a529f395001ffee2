"""Errors that end a job, with their exit codes, and descriptions of other errors for users."""

from __future__ import annotations

import errno
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from rltraining_api.contract import ExitCode
from rltraining_api.extras import install_command

from rltraining_trainer.user_trace import user_trace

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
LINE_MAX = 500
"""Maximum length of a line in messages and tracebacks of user code."""


class TrainerError(Exception):
    """An error that a restart cannot fix. The job fails with this message in its status."""

    exit_code = ExitCode.BAD_CONFIGURATION
    reason = "BadConfiguration"


class BadConfiguration(TrainerError):
    """The job's configuration is invalid: one sentence with the field and the remedy."""


class UserCodeError(TrainerError):
    """User code could not be imported, or raised an exception: one sentence, then the traceback."""

    exit_code = ExitCode.USER_CODE
    reason = "UserCodeError"


class EnvironmentRaised(UserCodeError):
    """Raised when an environment's ``reset`` or ``step`` raised an exception, or its process exited in
    the first reset."""


class EnvironmentLost(Exception):
    """Raised when the process of an environment has ended, for example by a native crash."""


class Diverged(TrainerError):
    """The loss is NaN or infinite, so that further updates are useless."""

    exit_code = ExitCode.DIVERGED
    reason = "Diverged"


class TooLarge(Diverged):
    """An environment returned a finite number that is too large to learn from."""


def install_remedy(extra: str) -> str:
    """Returns how to install an extra on one machine and in a cluster."""
    return f"{install_command(extra)} (in a cluster: an image with the extra {extra})"


def user_code_error(what: str, error: BaseException) -> TrainerError:
    """Converts ``error``, raised by user code: its message and location, then its traceback.

    Reraises a KeyboardInterrupt of Ctrl-C.

    Args:
        what: The code that was called, as the subject of the message.
        error: The exception. A TrainerError is returned unchanged.
    """
    if isinstance(error, TrainerError):
        return error
    if is_ctrl_c(error):
        raise error
    where, trace = user_trace(error)
    place = f" ({where})" if where else ""
    lines = "\n".join(map(_cut, trace.splitlines()))
    return UserCodeError(f"{what} raised {one_line(error)}{place}\n{lines}\n")


def is_ctrl_c(error: BaseException) -> bool:
    """Returns whether ``error`` is a KeyboardInterrupt that Ctrl-C may have caused.

    Processes of a job handle or ignore Ctrl-C, so that there only user code raises one.
    """
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return isinstance(error, KeyboardInterrupt) and is_default


def text_of(error: BaseException) -> str:
    """Returns ``str(error)``, or what a traceback shows if that raises."""
    try:
        return str(error)
    except BaseException:
        return "<exception str() failed>"


def one_line(error: BaseException) -> str:
    """Returns the type of ``error`` and the first line of its message, shortened if it is long."""
    message = text_of(error).strip().splitlines()
    return f"{type(error).__qualname__}: {_cut(message[0])}" if message else type(error).__qualname__


def _cut(line: str) -> str:
    """Shortens a line, so that the location of the error remains visible."""
    return line if len(line) <= LINE_MAX else f"{line[: LINE_MAX - 3]}..."


@contextmanager
def user_code(what: str) -> Iterator[None]:
    """Converts all exceptions inside the block to UserCodeError, including SystemExit."""
    try:
        yield
    except BaseException as error:
        raise user_code_error(what, error) from error


def storage_problem(error: BaseException) -> str:
    """Describes ``error``, raised by a file system or a driver, as the end of a sentence."""
    if isinstance(error, OSError) and error.errno in _NO_SPACE:
        return "the disk is full"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or type(error).__name__
