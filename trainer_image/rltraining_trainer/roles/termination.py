"""The termination message of a process, which the operator reads after the process has ended."""

from __future__ import annotations

import logging
import os
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rltraining_api.contract import (
    ENV_TERMINATION_LOG,
    TERMINATION_MESSAGE_BYTES_MAX,
    LearnerReport,
    TerminationMessage,
)
from rltraining_api.curve import thinned

LIMIT = TERMINATION_MESSAGE_BYTES_MAX
_WORDS = 1024
"""Bytes that the report leaves to the message, and maximum number of characters of the first line."""
_CURVE_POINTS = (20, 8)
"""Numbers of curve points to try in turn if a report is too long. 20 points take less than half of
the report's limit and leave the rest to evaluations and the replay buffer."""

_LOG = logging.getLogger(__name__)


def write_termination_message(reason: str, text: str, report: LearnerReport | None = None) -> None:
    """Writes the message for the operator. ``text`` is one sentence, optionally with a traceback."""
    path = os.environ.get(ENV_TERMINATION_LOG)
    if not path:
        return
    try:
        Path(path).write_text(termination_message(reason, text, report), encoding="utf-8")
    except OSError as error:
        _LOG.warning("the termination message could not be written to %s: %s", path, error.strerror)


def termination_message(reason: str, text: str, report: LearnerReport | None = None) -> str:
    """Returns a TerminationMessage in JSON of at most LIMIT bytes. Keeps the first line and the end of ``text``."""
    text = text.encode(errors="backslashreplace").decode()  # a file's name in it may not be valid Unicode
    report = _bearable(report)

    def written(text: str) -> str:
        message = TerminationMessage(reason=reason, message=text, report=report)
        return message.model_dump_json(by_alias=True, exclude_none=True)

    def shortened(size: int, cut: Callable[[int], str]) -> str | None:
        """Returns the message with ``cut(n)`` for the largest n in 0..size that fits. None: none fits."""
        n = bisect_right(range(size + 1), LIMIT, key=lambda n: len(written(cut(n)).encode())) - 1
        return written(cut(n)) if n >= 0 else None

    content = written(text)
    if len(content.encode()) <= LIMIT:
        return content
    first, _, rest = text.partition("\n")
    end = shortened(len(rest), lambda n: f"{first[:_WORDS]}\n...{rest[len(rest) - n :]}") if rest else None
    content = end or shortened(len(first), lambda n: first[:n]) or ""
    assert content, "a report within its limits leaves room"
    return content


def _bearable(report: LearnerReport | None) -> LearnerReport | None:
    """Shortens a report that is too long, step by step, until it fits.

    First reduces the curve's points, then drops conditions and warnings, which were served over
    HTTP before, then the whole curve. Returns None if nothing helps.
    """
    if report is None or _fits(report):
        return report
    reductions: tuple[dict[str, Any], ...] = (
        *({"curve": thinned(report.curve, points)} for points in _CURVE_POINTS),
        {"conditions": (), "warnings": ()},
        {"curve": ()},
    )
    for reduction in reductions:
        report = report.model_copy(update=reduction)
        if _fits(report):
            return report
    return None


def _fits(report: LearnerReport) -> bool:
    return len(report.model_dump_json(by_alias=True, exclude_none=True).encode()) <= LIMIT - _WORDS
