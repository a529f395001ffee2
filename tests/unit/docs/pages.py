"""The pages of this repository that people read, and what is in them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
ENTRANCES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "tests/cluster/README.md")
"""Pages outside docs/."""
FENCE = re.compile(r"^( *)(```+)(\w*)[^\n]*\n(.*?)^\1\2$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.+?)(?: *\{ *#([\w.-]+) *\})?$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@cache
def pages() -> dict[str, str]:
    """Texts by path in the repository."""
    paths = [*(ROOT / name for name in ENTRANCES), *sorted(DOCS.rglob("*.md"))]
    return {str(path.relative_to(ROOT)): path.read_text() for path in paths}


def blocks(language: str) -> list[Block]:
    """The fenced blocks of a language, of all pages."""
    return [
        Block(page, text.count("\n", 0, match.start()) + 1, language, match[4])
        for page, text in pages().items()
        for match in FENCE.finditer(text)
        if match[3] == language
    ]


def prose(text: str) -> str:
    """A page without its fenced blocks."""
    return FENCE.sub("", text)


def anchors(text: str) -> set[str]:
    """What the headings of a page can be linked by."""
    return {match[2] or _slug(match[1]) for match in HEADING.finditer(prose(text))}


def _slug(heading: str) -> str:
    words = re.sub(r"[^\w\s-]", "", re.sub(r"[`*]|\]\([^)]*\)", "", heading)).strip().lower()
    return re.sub(r"[\s]+", "-", words)
