"""Commands of the pages that no test runs.

`rltrain` parses its commands, and the Makefile and the chart contain the named targets and values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import typer.main
from rltraining.cli import app
from rltraining_operator.status.conditions import MANAGED_CONDITION_TYPES
from typer.exceptions import TyperException

from tests.docs_pages import ROOT, Command, commands
from tests.lint.chart import schema_of
from tests.lint.problem import Problem

ENDS = {"--help", "--version", "--install-completion"}
"""Options that end a command line before the rest of it is parsed."""


def wrong_commands(found: list[Command] | None = None) -> Iterator[Problem]:
    """Finds commands that would be refused."""
    makefile = (ROOT / "Makefile").read_text()
    for command in found or commands():
        for words in command.simple():
            if words[:2] == ["kubectl", "rltrain"]:
                words = words[1:]
            program, *arguments = words
            if program == "rltrain":
                errors = refusal(arguments)
            elif program == "make":
                errors = unknown_targets(arguments, makefile)
            elif program == "helm":
                errors = unknown_values(arguments)
            else:
                errors = unknown_conditions(words)
            for error in errors:
                yield Problem(command.page, command.line, f"{error}: correct the command")


def refusal(words: list[str]) -> Iterator[str]:
    """Parses the arguments of `rltrain` as the command line does."""
    words = [re.sub(r"^\$\w+$", "1", word) for word in words if word not in ENDS]
    root: Any = typer.main.get_command(app)
    if not words:
        return
    try:
        with root.make_context("rltrain", words) as top:
            name, below, rest = root.resolve_command(top, [*top._protected_args, *top.args])
            with below.make_context(name, rest, parent=top):
                pass
    except TyperException as error:
        yield f"rltrain refuses it: {error}"


def unknown_targets(words: list[str], makefile: str) -> Iterator[str]:
    """Finds arguments of `make` that are no target and no variable."""
    for word in words:
        name, assigned, _ = word.partition("=")
        if not re.search(rf"^{name} +[?:]?=" if assigned else rf"^{name}:", makefile, re.MULTILINE):
            yield f"the Makefile has no {name}"


def unknown_values(words: list[str]) -> Iterator[str]:
    """Finds values that the chart does not have."""
    for option, setting in pairwise(words):
        if option == "--set" and not schema_of(setting.partition("=")[0]):
            yield f"the chart has no value {setting.partition('=')[0]}"


def unknown_conditions(words: list[str]) -> Iterator[str]:
    """Finds conditions for which `kubectl wait` would wait until its timeout, since no job has them."""
    if words[:2] == ["kubectl", "wait"] and any(word.startswith("rlj") for word in words):
        for word in words:
            condition = word.removeprefix("--for=condition=")
            if condition != word and condition not in MANAGED_CONDITION_TYPES:
                yield f"jobs have no condition {condition}"


CHECKS = (wrong_commands,)
