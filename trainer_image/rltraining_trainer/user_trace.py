"""Of an exception that the user's code raised: the part of its traceback that is theirs, and where it ended."""

from __future__ import annotations

import sys
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

LIBRARIES = ("rltraining_trainer", "gymnasium", "torch", "numpy")
"""What calls the user's code, and is called by it: seldom where the mistake is."""


def user_trace(error: BaseException) -> tuple[str, str]:
    """(``maze.py, line 23``, the innermost place in the user's code, or nothing, and the traceback from where it begins).

    What does not parse tells its place itself.
    Where nothing in it is theirs, as when they return what gymnasium cannot take, it begins after our own code.
    """
    frames = list(_frames(error.__traceback__))
    places = [_place(frame) for frame in frames]
    theirs = [number for number, place in enumerate(places) if not place]
    begin: TracebackType | None
    if theirs:
        begin, innermost = frames[theirs[0]], frames[theirs[-1]]
        where = f"{Path(innermost.tb_frame.f_code.co_filename).name}, line {innermost.tb_lineno}"
        if isinstance(error, SyntaxError):
            where = ""  # it is not where it was imported
    else:
        outside = (frame for frame, place in zip(frames, places, strict=True) if place == "library")
        # What does not parse or is not there has no frame of its own: the error itself tells where.
        alone = isinstance(error, SyntaxError | ModuleNotFoundError)
        begin = next(outside, None if alone else error.__traceback__)
        where = ""
    return where, "".join(traceback.TracebackException(type(error), error, begin).format())


def _frames(begin: TracebackType | None) -> Iterator[TracebackType]:
    frame = begin
    while frame is not None:
        yield frame
        frame = frame.tb_next


def _place(frame: TracebackType) -> str:
    """`ours`, with Python's importing, `library`, or nothing for the user's own."""
    name = frame.tb_frame.f_code.co_filename
    if name.startswith("<"):
        return "ours"
    path = Path(name)
    for library in LIBRARIES:
        file = getattr(sys.modules.get(library), "__file__", None)
        if file is not None and path.is_relative_to(Path(file).parent):
            return "ours" if library == LIBRARIES[0] else "library"
    installed = {"site-packages", "dist-packages"} & set(path.parts)
    if not installed and path.is_relative_to(sysconfig.get_path("stdlib")):
        return "ours" if "importlib" in path.parts else "library"
    return ""
