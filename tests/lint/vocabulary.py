"""Texts use standard terms: no private phrases in pages, comments, docstrings, messages and the generated CRD."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.docs_pages import ROOT
from tests.lint.problem import Problem

FOLDERS = (".github", "charts", "client", "crds", "docs", "examples", "operator", "tests", "trainer_image")
CODE = frozenset({".c", ".cpp", ".go", ".py", ".sh"})
SUFFIXES = CODE | {".html", ".j2", ".json", ".md", ".toml", ".tpl", ".txt", ".yaml", ".yml"}
NAMES = frozenset({"Dockerfile", "Makefile", ".dockerignore", ".gitignore"})
CONTAIN_PHRASES = frozenset({"tests/lint/vocabulary.py", "tests/unit/test_lint.py"})
"""Files that contain private phrases as data."""

BE = "(?:are|be|been|is|was|were)"
PROGRAM = "(?:client|endpoint|learner|member|operator|pod|process|program|sampler|server|shard|trainer)s?"
PHRASES = {
    "(?:go|goes|going|gone|went) on(?! (?:a|an|the|this|your) )": "continues, or resumes",
    "anew": "again; for 'begins anew': restarts",
    "(?:began|begin|begins|begun) again": "restarts",
    "seldom": "rarely",
    "for ever": "without end, or never returns",
    "(?:any|every|no|some)body": "no process, another client, or each caller",
    "whoever|who (?:asks|comes|knows|waits)": "the caller, or the process that",
    "mend(?:ed|ing|s)?": "fixes, or repairs",
    "heal(?:ed|ing|s)?": "recovers, or is repaired",
    "of (?:its|one's|their) own|one's own": "a separate, or its",
    f"{BE} (?:not )?to (?:be|come|do|go|have|take)": "must, should, or will",
    "(?:lay|lie|lies) (?:at|beside|here|in|on|there)": "is stored in, or is located in",
    "stands? (?:at|beside|here|in|still|there|twice|where)": "is in, is repeated, or is stalled",
    "so (?:few|long|many|often|old)(?! (?:as|that))": "N, at most N, or for N seconds",
    "last words": "termination message",
    "(?:tell|tells|told) (?:by|each|it|its|of|them|whom)": "sends, reports, or lists",
    f"{BE} told": "receives, or is notified",
    f"{PROGRAM} (?:hears?|heard|knew|knows?|said|says?|tells?|told)": "has, receives, reports, or logs",
    "(?:heard|hears?) (?:from|nothing|of|that)": "receives",
    "those (?:that|who) are there": "the present members",
    "the one before (?:it|that)": "the previous one",
    "(?:came|come|comes) (?:too )?late": "arrives too late",
    "what (?:had |has )?(?:came|come)": "the received items",
    f"{BE} waited for": "blocks on",
    f"{BE} away": "is unavailable, or is not running",
    "of (?:no )?use": "helps, is needed, or cannot be used",
    "parameter holders?": "parameter server",
}
"""Private phrases as regular expressions without groups that capture, and what to write instead."""
GAP = r"""(?:\s+(?:(?:\#|//)\s+|["']\s+f?["'])?)"""
"""What a space in a phrase matches, also at the end of a line in a comment or between two strings."""
REPLACEMENTS = tuple(PHRASES.values())
PATTERN = re.compile(rf"\b(?:{'|'.join(f'({phrase})' for phrase in PHRASES)})\b".replace(" ", GAP))


def private_phrases(root: Path = ROOT) -> Iterator[Problem]:
    """Finds private phrases in all texts of the repository."""
    for path in _files(root):
        text = path.read_text(encoding="utf-8").lower()
        found = list(PATTERN.finditer(text))
        if found and path.suffix == ".py":
            found = list(PATTERN.finditer(_without_names(text)))
        for match in found:
            words = " ".join(re.findall(r"[\w']+", match[0]))
            write = REPLACEMENTS[(match.lastindex or 1) - 1]
            line = text.count("\n", 0, match.start()) + 1
            yield Problem(str(path.relative_to(root)), line, f"private phrase {words!r}: write {write}")


def _files(root: Path) -> Iterator[Path]:
    """Yields the files to search, without links and build folders."""
    folders = [folder for name in FOLDERS if (folder := root / name).is_dir()]
    for path in (*root.iterdir(), *(path for folder in folders for path in folder.rglob("*"))):
        name = str(path.relative_to(root))
        is_text = path.suffix in SUFFIXES or path.name in NAMES
        if is_text and path.is_file() and not path.is_symlink() and name not in CONTAIN_PHRASES:
            yield path


def _without_names(code: str) -> str:
    """Replaces the names in Python code, so that comments and strings remain."""
    lines = code.split("\n")
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.NAME:
            (row, start), (_, end) = token.start, token.end
            lines[row - 1] = f"{lines[row - 1][:start]}{'_' * (end - start)}{lines[row - 1][end:]}"
    return "\n".join(lines)


CHECKS = (private_phrases,)
