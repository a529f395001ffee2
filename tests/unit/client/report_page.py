"""Parses a page as a browser does."""

from __future__ import annotations

from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

VOID = {"meta", "link", "br", "img", "hr", "input"}
FROM_ELSEWHERE = {"src", "href", "xlink:href", "data", "srcset", "action", "poster"}


class Page(HTMLParser):
    """Elements, ids, and the text without styles. Raises AssertionError for an unclosed element."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.source = file.read_text(encoding="utf-8")
        self.tags: Counter[str] = Counter()
        self.ids: Counter[str] = Counter()
        self.referred: set[str] = set()
        """Ids that other elements name."""
        self.links: list[str] = []
        self.titles: list[str] = []
        """Titles of the diagrams."""
        self.text = ""
        self._open: list[str] = []
        self.feed(self.source)
        self.close()
        assert self._open == [], f"not closed: {self._open}"

    def has(self, words: str) -> bool:
        return " ".join(words.split()) in " ".join(self.text.split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        if tag not in VOID:
            self._open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids[value or ""] += 1
            if name == "aria-labelledby":
                self.referred.update((value or "").split())
            if name in FROM_ELSEWHERE:
                self.links.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        assert self._open, f"</{tag}> closes nothing"
        assert self._open.pop() == tag, f"</{tag}> closes another"

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "style":
            return
        self.text += data
        if self._open[-2:] == ["svg", "title"]:
            self.titles.append(data)
