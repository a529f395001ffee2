"""What all commands share: how their help is laid out, and how they end."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from inspect import cleandoc
from typing import Annotated, Any, TypeVar

import typer

from rltraining.errors import ClientError, Exit
from rltraining.printable import say

F = TypeVar("F", bound=Callable[..., Any])

Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="PATH=VALUE", help="Change a field of the manifest. May be given repeatedly."
    ),
]


class PresetName(StrEnum):
    """The names of presets, for the command line."""

    ATARI = "Atari"
    MUJOCO = "MuJoCo"
    CLASSIC = "Classic"


Seed = Annotated[int | None, typer.Option(help="Short for --set seed=N.", show_default=False)]
Sweep = Annotated[
    list[str] | None,
    typer.Option(
        "--sweep",
        metavar="PATH=A,B,...",
        help="A job for each value of a field. Given repeatedly, for each combination. Commas within [], {} or quotes "
        "belong to a value.",
    ),
]
Seeds = Annotated[
    int | None,
    typer.Option(help="Each job with so many seeds: spec.seed, spec.seed + 1, ...", show_default=False),
]

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""

FULL = (errno.ENOSPC, errno.EDQUOT)
"""These come from a file that is open already, standard output among them, and so without a name."""


def reflow(docstring: str | None) -> str:
    """A docstring as help: text is wrapped to the terminal; what is indented (after a \\b, for click) stays."""
    paragraphs = cleandoc(docstring or "").split("\n\n")
    return "\n\n".join(f"\b\n{text}" if text.startswith(" ") else text for text in paragraphs)


def command(app: typer.Typer) -> Callable[[F], F]:
    """Makes a function, with its docstring for help, a command of an app."""

    def register(function: F) -> F:
        return app.command(help=reflow(function.__doc__))(function)

    return register


@contextmanager
def refusals() -> Iterator[None]:
    """What cannot be done is said in sentences on standard error; a traceback is for bugs. A file that cannot be read or
    written is none, wherever that is noticed."""
    try:
        yield
    except ClientError as error:
        for problem in error.problems:
            complain(problem)
        raise typer.Exit(error.exit_code) from None
    except OSError as error:
        if error.filename is None and error.errno not in FULL:
            raise
        complain(f"{error.filename or 'the output'}: {error.strerror}")
        raise typer.Exit(Exit.USAGE) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def complain(problem: str) -> None:
    """`error: …` on standard error."""
    typer.secho("error: ", fg="red", bold=True, nl=False, err=True)
    say(problem, err=True)
