"""Pages of the site that are made from files elsewhere in the repository: a link that leaves docs/ leads to one.

Changelog, contributing and security policy are pages like all others; of any other file its text is shown, of a folder its
list of files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
}
"""Files of the repository's root that are pages of the site."""
LINK = re.compile(r"(\]\()([^)#\s]+)([^)\s]*\))")
FENCE = re.compile(r"^( *)(```+).*?^\1\2$", re.MULTILINE | re.DOTALL)
LANGUAGES = {".py": "python", ".yaml": "yaml", ".tpl": "yaml", ".json": "json", ".md": "markdown", ".c": "c"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what the pages link to."""
    texts = {f"docs/{file.src_uri}": file.content_string for file in files.documentation_pages()}
    for source, page in PAGES.items():
        texts[source] = (ROOT / source).read_text()
        files.append(File.generated(config, page, content=texts[source]))
    targets = {_target(source, link) for source, text in texts.items() for link in _links(text)}
    outside = sorted(target for target in targets if target and _is_outside(target))
    # Add no page for a missing file. The build then reports a broken link.
    for target in filter(_is_there, outside):
        path = f"source/{target}.md"
        # Not in the navigation, and also shown if the name begins with a dot, which MkDocs would exclude.
        included = InclusionLevel.NOT_IN_NAV
        files.append(File.generated(config, path, content=_shown(target), inclusion=included))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let the links lead there."""
    uri = page.file.src_uri
    origins = {page: source for source, page in PAGES.items()}

    def rewrite(match: re.Match[str]) -> str:
        target = _target(origins.get(uri, f"docs/{uri}"), match[2])
        if target is None:
            return match[0]
        inside = PAGES.get(target, target.removeprefix("docs/"))
        target = f"source/{target}.md" if _is_outside(target) else inside
        return f"{match[1]}{os.path.relpath(target, PurePosixPath(uri).parent)}{match[3]}"

    return _outside_fences(markdown, lambda text: LINK.sub(rewrite, text))


def _links(text: str) -> list[str]:
    return [match[2] for match in LINK.finditer(FENCE.sub("", text))]


def _outside_fences(text: str, change: Callable[[str], str]) -> str:
    parts, at = [], 0
    for fence in FENCE.finditer(text):
        parts += [change(text[at : fence.start()]), fence[0]]
        at = fence.end()
    return "".join([*parts, change(text[at:])])


def _target(source: str, link: str) -> str | None:
    """The path in the repository that a link in a file of it leads to; None: it leads elsewhere."""
    if "://" in link or link.startswith(("mailto:", "/")):
        return None
    return os.path.normpath(os.path.join(os.path.dirname(source), link))  # noqa: PTH118, PTH120 - no file is meant


def _is_outside(target: str) -> bool:
    return not target.startswith("docs/") and target != "docs" and target not in PAGES


def _is_there(target: str) -> bool:
    return not target.startswith("..") and (ROOT / target).exists()


def _shown(target: str) -> str:
    """A file's text, or a folder's list of files."""
    path = ROOT / target
    head = f"---\ntitle: {target}\nsearch: {{exclude: true}}\n---\n\n# {target}\n\n"
    if path.is_dir():
        files = (file.relative_to(path) for file in path.rglob("*") if file.is_file())
        listed = "".join(f"{file}\n" for file in sorted(files) if "__pycache__" not in file.parts)
        return head + "A folder of the repository:\n\n```text\n" + listed + "```\n"
    fence = "`````"
    return f"{head}{fence}{LANGUAGES.get(path.suffix, 'text')}\n{path.read_text()}{fence}\n"
