"""The one way to a terminal. Messages, Events and names come from pods, manifests and folders of others, and a terminal obeys
control characters: they are shown as escapes, as kubectl shows them."""

from __future__ import annotations

import re

import typer

_CONTROLS = (*range(0x20), *range(0x7F, 0xA0))
_REORDER = (0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
"""What ends lines for some programs, or turns the direction of text, so that it reads as something else."""
_LINE = {code: ascii(chr(code))[1:-1] for code in (*_CONTROLS, *_REORDER, *range(0xD800, 0xE000))}
_TEXT = {code: shown for code, shown in _LINE.items() if chr(code) not in "\n\t"}
_COLOUR = re.compile(r"(\x1b\[[0-9;]*m)")


def printable(text: str) -> str:
    """Text with its line breaks and tabs, and every other control character as an escape: `\\x1b`."""
    return text.translate(_TEXT)


def one_line(text: str) -> str:
    """The same for what must stay one line: a cell of a table, a line of a log."""
    return text.translate(_LINE)


def with_colours(line: str) -> str:
    """A line of a program's own output, with the colours and styles that it chose, and nothing else of what moves a cursor."""
    return "".join(part if _COLOUR.fullmatch(part) else printable(part) for part in _COLOUR.split(line))


def say(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print. Every command does it with this, but for live pictures and the lines of `plain`."""
    typer.echo(printable(text), err=err, nl=nl)
