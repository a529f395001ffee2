"""Finds this repository's documentation pages and parses their content."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
ENTRANCES = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "charts/rltraining-operator/README.md",
    "tests/cluster/README.md",
    "tests/local_kubernetes/README.md",
)
"""Pages outside docs/."""
FENCE = re.compile(r"^( *)(```+)(\w*)[^\n]*\n(.*?)^\1\2$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Command:
    """A command that a page asks its reader to type."""

    page: str
    line: int
    text: str
    """The command without its trailing comment; continuation lines are joined."""

    def __str__(self) -> str:
        return f"{self.page}:{self.line} {self.text[:50]}"

    def simple(self) -> Iterator[list[str]]:
        """Yields the words of each command in the text: both sides of a pipe, and the body of a loop."""
        shell = shlex.shlex(self.text, posix=True, punctuation_chars=";|&")
        shell.whitespace_split = True
        words: list[str] = []
        for token in [*shell, ";"]:
            if set(token) <= set(";|&"):
                if words:
                    yield words
                words = []
            elif token not in ("do", "done"):
                words.append(token)


@cache
def site() -> list[str]:
    """Returns the site's pages in navigation order, without the pages that the build generates."""
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]
    found = (f"docs/{page}" for page in re.findall(r"\S+\.md$", navigation, re.MULTILINE))
    return [page for page in found if (ROOT / page).exists()]


@cache
def pages() -> dict[str, str]:
    """Returns texts by path in the repository, in reading order, beginning with the site's pages."""
    others = (str(path.relative_to(ROOT)) for path in sorted(DOCS.rglob("*.md")))
    return {page: (ROOT / page).read_text() for page in dict.fromkeys([*ENTRANCES, *site(), *others])}


def blocks(language: str) -> list[Block]:
    """Returns the fenced blocks of a language, of all pages."""
    return [
        Block(page, text.count("\n", 0, match.start()) + 1, language, match[4])
        for page, text in pages().items()
        for match in FENCE.finditer(text)
        if match[3] == language
    ]


def commands() -> list[Command]:
    """Returns the text after each `$ ` of all ```console blocks."""
    found = []
    for block in blocks("console"):
        lines = block.text.splitlines()
        for number, line in enumerate(lines, block.line + 1):
            if not line.startswith("$ "):
                continue
            following = iter(lines[number - block.line :])
            text = line[2:]
            while text.endswith("\\"):
                text = text[:-1] + next(following).strip()
            found.append(Command(block.page, number, re.sub(r"\s+#\s.*$", "", text).strip()))
    return found


def prose(text: str) -> str:
    """Returns a page without its fenced blocks."""
    return FENCE.sub("", text)
