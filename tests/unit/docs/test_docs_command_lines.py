"""Commands that pages tell people to type exist, and have these options. Those that can run here are run by tests/e2e,
those of kubectl and helm are looked at in tests/cluster."""

from __future__ import annotations

import re

import pytest
import typer
import typer.main
from docs_pages import ROOT, Command, commands
from rltraining.cli import app
from rltraining_operator.conditions import OURS

PROGRAMS = {
    *("rltrain", "kubectl", "helm", "make", "docker", "buildah", "kind"),
    *("python", "pip", "pytest", "source", "export", "ls", "cp", "cat", "for", "curl", "tensorboard"),
}
"""What pages may start. Another program's commands need a check of their own, or none."""


def of(program: str) -> list[tuple[Command, list[str]]]:
    """Commands of a program, with their words; `kubectl rltrain` is rltrain."""
    found = []
    for command in commands():
        for words in command.simple():
            plugin = words[:2] == ["kubectl", "rltrain"]
            if (words[1] if plugin else words[0]) == program:
                found.append((command, words[2:] if plugin else words[1:]))
    return found


def test_there_are_commands() -> None:
    assert len(of("rltrain")) > 20


@pytest.mark.parametrize("command", commands(), ids=str)
def test_only_known_programs_are_started(command: Command) -> None:
    for words in command.simple():
        program = next(word for word in words if not re.fullmatch(r"\w+=.*", word))
        assert program in PROGRAMS, f"{command}: {program} is not known to the tests of the documentation"


@pytest.mark.parametrize(("command", "words"), of("rltrain"), ids=[str(each[0]) for each in of("rltrain")])
def test_rltrain_has_the_command_and_its_options(command: Command, words: list[str]) -> None:
    root = typer.main.get_command(app)
    # What goes before the command's name belongs to rltrain itself; --help and --version end a command line.
    words = [
        re.sub(r"^\$\w+$", "1", word)
        for word in words
        if word not in ("--help", "--version", "--install-completion")
    ]
    if not words:
        return
    with root.make_context("rltrain", list(words)) as top:
        name, below, rest = root.resolve_command(top, [*top._protected_args, *top.args])
        assert below is not None, command
        with below.make_context(name, list(rest), parent=top):
            pass


@pytest.mark.parametrize(("command", "words"), of("make"), ids=[str(each[0]) for each in of("make")])
def test_make_has_the_target_and_the_variables(command: Command, words: list[str]) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for word in words:
        name, assigned, _ = word.partition("=")
        pattern = rf"^{name} +[?:]?=" if assigned else rf"^{name}:"
        assert re.search(pattern, makefile, re.MULTILINE), f"{command}: the Makefile has no {name}"


def test_what_kubectl_waits_for_is_a_condition_of_a_job() -> None:
    """It would wait for any other to its timeout."""
    waits = [
        (command, option.removeprefix("--for=condition="))
        for command, words in of("kubectl")
        if words[0] == "wait" and any(word.startswith("rlj") for word in words)
        for option in words
        if option.startswith("--for=")
    ]
    assert waits
    for command, condition in waits:
        assert condition in OURS, f"{command}: jobs have no condition {condition}"
