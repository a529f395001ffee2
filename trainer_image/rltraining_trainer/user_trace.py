"""Extracts the part of a traceback that concerns the user's code."""

from __future__ import annotations

import sys
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

LIBRARIES = ("rltraining_trainer", "gymnasium", "torch", "numpy", "pydantic")
"""Packages that call user code or are called by it."""


def user_trace(error: BaseException) -> tuple[str, str]:
    """Returns the innermost location in user code, such as ``maze.py, line 23``, and the traceback.

    The traceback starts with the first frame of user code. If there is none, for example because
    user code returned an invalid value to gymnasium, it starts after the trainer's frames. The
    location is empty if there is none, or for a SyntaxError, whose message contains it.
    """
    frames = list(_frames(error.__traceback__))
    owners = [_owner(frame) for frame in frames]
    users = [number for number, owner in enumerate(owners) if not owner]
    begin: TracebackType | None
    where = ""
    if users:
        begin, innermost = frames[users[0]], frames[users[-1]]
        # The frame of a SyntaxError belongs to the import.
        if not isinstance(error, SyntaxError):
            where = f"{Path(innermost.tb_frame.f_code.co_filename).name}, line {innermost.tb_lineno}"
    else:
        library = (frame for frame, owner in zip(frames, owners, strict=True) if owner == "library")
        # A module with a syntax error and a missing module have no frames. Their messages suffice.
        no_frames = isinstance(error, SyntaxError | ModuleNotFoundError)
        begin = next(library, None if no_frames else error.__traceback__)
    return where, "".join(traceback.TracebackException(type(error), error, begin).format())


def _frames(begin: TracebackType | None) -> Iterator[TracebackType]:
    frame = begin
    while frame is not None:
        yield frame
        frame = frame.tb_next


def _owner(frame: TracebackType) -> str:
    """Returns ``trainer`` (also for Python's import system), ``library`` or nothing."""
    name = frame.tb_frame.f_code.co_filename
    if name.startswith("<"):
        return "trainer"
    path = Path(name)
    if not path.is_absolute() and not path.exists():  # compiled code, such as numpy's random
        return "library"
    for library in LIBRARIES:
        file = getattr(sys.modules.get(library), "__file__", None)
        if file is not None and path.is_relative_to(Path(file).parent):
            return "trainer" if library == LIBRARIES[0] else "library"
    installed = {"site-packages", "dist-packages"} & set(path.parts)
    if not installed and path.is_relative_to(sysconfig.get_path("stdlib")):
        return "trainer" if "importlib" in path.parts else "library"
    return ""
