"""Links of pages lead to files, and pictures are shown. `make docs` checks anchors and the navigation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tests.docs_pages import DOCS, LINK, ROOT, pages, prose
from tests.lint.problem import Problem, line_of


def broken_links(texts: Mapping[str, str] | None = None) -> Iterator[Problem]:
    """Finds relative links to files that do not exist."""
    for page, text in (texts or pages()).items():
        for link in LINK.findall(prose(text)):
            path = link.partition("#")[0]
            if "://" not in link and not (ROOT / page).parent.joinpath(path).exists():
                yield Problem(page, line_of(text, f"]({link})"), f"there is no {path}: correct the link")


def unused_pictures() -> Iterator[Problem]:
    """Finds pictures that no page shows."""
    shown = {link.rpartition("/")[2] for text in pages().values() for link in LINK.findall(prose(text))}
    for path in sorted((DOCS / "images").iterdir()):
        if path.name not in shown:
            yield Problem(str(path.relative_to(ROOT)), 1, "no page shows this picture: delete it")


CHECKS = (broken_links, unused_pictures)
