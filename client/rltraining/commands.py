"""Defines the common parts of all commands: the layout of their help, and error handling."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import cleandoc
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperGroup

from rltraining.errors import ClientError, Exit
from rltraining.printable import say

F = TypeVar("F", bound=Callable[..., Any])

Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="PATH=VALUE", help="Change a field of the manifest. May be given repeatedly."
    ),
]


MANIFEST = "The manifest, a folder with a job.yaml, or a built-in example (rltrain examples); - reads standard input."


PLAIN = typer.Option("--plain", help="Print lines of text, as for an output that is not a terminal.")
Seed = Annotated[int | None, typer.Option(help="Short for --set seed=N.")]
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
    typer.Option(help="Number of seeds per job: spec.seed, spec.seed + 1, ..."),
]

INTERRUPTED = 130
"""Exit code after Ctrl-C, as in shells."""

FULL = (errno.ENOSPC, errno.EDQUOT)
"""Errors of open files without a name, such as standard output."""


def reflow(docstring: str | None) -> str:
    r"""Returns a docstring as help. Text is wrapped to the terminal. Indented text is kept (after a
    \b, for click)."""
    paragraphs = cleandoc(docstring or "").split("\n\n")
    return "\n\n".join(f"\b\n{text}" if text.startswith(" ") else text for text in paragraphs)


class Commands(TyperGroup):
    """All commands."""

    def invoke(self, ctx: Any) -> Any:
        """Runs a command. Leaves out the kind of error with which pydantic begins typer's message about a wrong choice."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")
            raise


def command(app: typer.Typer) -> Callable[[F], F]:
    """Returns a decorator that adds a function as a command of the app. Its docstring is the
    help. Errors of users are printed as sentences (see `print_errors`)."""

    def register(function: F) -> F:
        return app.command(help=reflow(function.__doc__))(print_errors()(function))

    return register


@contextmanager
def print_errors() -> Iterator[None]:
    """Prints errors of users as sentences on standard error, and exits. Files that cannot be read
    or written are such errors. A traceback is for bugs."""
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
    """Prints `error: …` on standard error."""
    typer.secho("error: ", fg="red", bold=True, nl=False, err=True)
    say(problem, err=True)
