"""Links between pages, and the site's navigation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from docs_pages import DOCS, LINK, ROOT, anchors, pages, prose

MADE = re.compile(r"<!-- (?:fields|commands)")
"""A page with parts that are made when the site is built: `make docs` checks the anchors in these."""


@pytest.mark.parametrize("page", pages())
def test_every_link_of_a_page_leads_somewhere(page: str) -> None:
    broken = []
    for link in LINK.findall(prose(pages()[page])):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = ((ROOT / page).parent / path).resolve() if path else ROOT / page
        if not target.exists():
            broken.append(f"{link}: there is no such file")
        elif anchor:
            text = target.read_text()
            if anchor not in anchors(text) and not MADE.search(text):
                broken.append(f"{link}: the page has no such heading")
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize("page", [page for page in pages() if page.startswith("docs/")])
def test_every_page_is_in_the_sites_navigation(page: str) -> None:
    name = page.removeprefix("docs/")
    assert name in _navigation(), f"{page} is not in the navigation: add it under nav in mkdocs.yml"


def test_every_entry_of_the_navigation_is_a_page() -> None:
    made_elsewhere = {"changelog.md", "contributing.md", "security-policy.md"}
    missing = [name for name in _navigation() if not (DOCS / name).is_file() and name not in made_elsewhere]
    assert not missing, f"mkdocs.yml names pages that do not exist: {missing}"


def _navigation() -> list[str]:
    text = re.sub(r"!!python/name:\S+", "", (ROOT / "mkdocs.yml").read_text())
    return list(_names(yaml.safe_load(text)["nav"]))


def _names(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    else:
        for below in entry.values() if isinstance(entry, dict) else entry:
            yield from _names(below)
