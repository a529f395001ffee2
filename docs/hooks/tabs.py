"""Shows the sections between `<!-- tabs -->` and `<!-- end -->` as tabs, one for each `## Heading`.

Pages are also read as files of the repository, where tabs would be shown as code. There the sections remain sections.
"""

from __future__ import annotations

import re
from textwrap import indent

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

TABS = re.compile(r"^<!-- tabs -->$(.*?)^<!-- end -->$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^## (.+)$", re.MULTILINE)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    return TABS.sub(lambda match: tabs(match[1]), markdown)


def tabs(sections: str) -> str:
    """Returns the tabs for Markdown that begins with a heading."""
    _, *parts = HEADING.split(sections)
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return "\n".join(f'=== "{heading}"\n{indent(text, "    ")}' for heading, text in pairs)
