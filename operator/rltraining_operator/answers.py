"""Asking a learner for its report. User code runs in its process: nothing that it answers is trusted."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import ValidationError
from rltraining_api.contract import REPORT_BYTES_MAX, STATUS_PATH, LearnerReport

from rltraining_operator import http

PROBLEM_MAX = 200
"""Characters that describe what is wrong with an answer, however much is."""


@dataclass(frozen=True)
class BadReport:
    """An answer that is no report."""

    problem: str
    """What is wrong with it, in one short line: it goes into logs and into the job's status."""


async def ask_learner(
    host: str, port: int, token: str, timeout_seconds: float
) -> LearnerReport | BadReport | None:
    """The report of the learner at this address; None if it does not answer in time, or not yet with a report."""
    headers = {"Authorization": f"Bearer {token}"}
    response = await http.get(host, port, STATUS_PATH, headers=headers, timeout_seconds=timeout_seconds)
    if response is None or response.status != 200:
        return None
    if not response.complete:
        return BadReport(f"it is longer than {REPORT_BYTES_MAX >> 10} KiB")
    return parse_report(response.body)


def parse_report(body: bytes) -> LearnerReport | BadReport:
    """Validates the JSON of a report. Takes milliseconds at most: the length of `body` is bounded, and so is what is said
    about it."""
    if len(body) > REPORT_BYTES_MAX:
        return BadReport(f"it is longer than {REPORT_BYTES_MAX >> 10} KiB")
    try:
        return LearnerReport.model_validate_json(body, extra="ignore")
    except ValidationError as error:
        count = error.error_count()
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"])) or "the report"
        problem = f"{count} error{'s' if count > 1 else ''}, the first: {where}: {first['msg']}"
        return BadReport(" ".join(problem.split())[:PROBLEM_MAX])
