"""The commands for kubectl and helm that stand in the pages: these programs know them, and their options."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from docs_pages import ROOT, Command, commands

CHART = ROOT / "charts" / "rltraining-operator"
WITH_SUBCOMMANDS = {("helm", "get"), ("kubectl", "create")}


def of(program: str) -> list[tuple[Command, list[str]]]:
    found = [(command, words) for command in commands() for words in command.simple()]
    return [(command, words) for command, words in found if words[0] == program and words[1] != "rltrain"]


CASES = [*of("helm"), *of("kubectl")]


@cache
def options(built: Path, *words: str) -> set[str]:
    """What a command of a program takes, as its own help says it."""
    program, *rest = words
    # kubectl's own --help leaves out what all commands take.
    more = [[*rest, "--help"], *([["options"]] if program == "kubectl" else [])]
    text = ""
    for arguments in more:
        done = subprocess.run(
            [built / program, *arguments], capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stderr
        text += done.stdout
    return set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", text))


@pytest.mark.parametrize(("command", "words"), CASES, ids=[str(command) for command, _ in CASES])
def test_a_command_in_a_page_has_its_options(built: Path, command: Command, words: list[str]) -> None:
    name = words[:3] if tuple(words[:2]) in WITH_SUBCOMMANDS else words[:2]
    known = options(built, *name)
    given = {word.partition("=")[0] for word in words if word.startswith("-")}
    assert not given - known, f"{command}: {' '.join(name)} has no {given - known}"


def test_values_that_pages_set_are_the_charts() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    named = [
        (command, setting.partition("=")[0])
        for command, words in of("helm")
        for option, setting in pairwise(words)
        if option == "--set"
    ]
    assert named
    for command, path in named:
        found = values
        for key in path.split("."):
            assert key in found, f"{command}: the chart has no value {path}"
            found = found[key]
