"""Parses the answers of learners. They are untrusted, because user code runs in a learner's
process. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import ValidationError
from rltraining_api.contract import REPORT_BYTES_MAX, LearnerReport

PROBLEM_MAX = 200
"""Characters of the description of an invalid answer, for any number of errors."""


@dataclass(frozen=True)
class BadReport:
    """An answer that is not a valid report."""

    problem: str
    """One short line that describes the problem, for logs and the job's status."""


TOO_LONG = BadReport(f"it is longer than {REPORT_BYTES_MAX >> 10} KiB")
TOKEN_REJECTED = BadReport(
    "it refuses the token that the operator derives for this job: the job's token is from another key"
)


def parse_report(body: bytes) -> LearnerReport | BadReport:
    """Validates the JSON of a report. This takes milliseconds at most, since the length of `body`
    and of the error message is bounded."""
    if len(body) > REPORT_BYTES_MAX:
        return TOO_LONG
    try:
        return LearnerReport.model_validate_json(body, extra="ignore")
    except ValidationError as error:
        count = error.error_count()
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"])) or "the report"
        problem = f"{count} error{'s' if count > 1 else ''}, the first: {where}: {first['msg']}"
        return BadReport(" ".join(problem.split())[:PROBLEM_MAX])
