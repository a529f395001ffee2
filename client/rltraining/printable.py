"""Prints untrusted text on a terminal. Messages, Events and names may come from pods, manifests and
folders of other people, and a terminal interprets control characters. So they are printed as
escapes, as in kubectl."""

from __future__ import annotations

import re

import typer

_CONTROLS = (*range(0x20), *range(0x7F, 0xA0))
_REORDER = (0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
"""Characters that some programs treat as line breaks, or that change the direction of text, so that
it misleads readers."""
_LINE = {code: ascii(chr(code))[1:-1] for code in (*_CONTROLS, *_REORDER, *range(0xD800, 0xE000))}
_TEXT = {code: shown for code, shown in _LINE.items() if chr(code) not in "\n\t"}
_COLOUR = re.compile(r"(\x1b\[[0-9;]*m)")


def printable(text: str) -> str:
    """Escapes all control characters except line breaks and tabs: `\\x1b`."""
    return text.translate(_TEXT)


def one_line(text: str) -> str:
    """Escapes all control characters, for text that must stay on one line: a table cell, a log
    line."""
    return text.translate(_LINE)


def with_colours(line: str) -> str:
    """Escapes a line of a program's output, but keeps its colours and styles."""
    return "".join(part if _COLOUR.fullmatch(part) else printable(part) for part in _COLOUR.split(line))


def say(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Prints text. Every command uses this function, except for live pictures and the lines of
    `plain`."""
    typer.echo(printable(text), err=err, nl=nl)
