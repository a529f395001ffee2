"""The size of a report is bounded on both sides: a long text loses its middle, not the entire report."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from rltraining_api.contract import (
    REPORT_BYTES_MAX,
    REPORTED_TEXT_MAX,
    REPORTED_WARNINGS_MAX,
    LearnerReport,
    ReportedCondition,
    Warning,
    shortened,
)
from rltraining_api.curve import CURVE_POINTS_MAX, CurvePoint
from rltraining_api.evaluation import EvaluationResult, EvaluationStatus
from rltraining_api.status import CheckpointStatus

TRACEBACK = (
    "CheckpointError: the bucket refuses it\n" + "  File x, in put\n" * 200 + "OSError: quota exceeded"
)

RESULT = EvaluationResult(
    environment_steps=2**53,
    seconds=1e9 / 3,
    episodes=10_000,
    **dict.fromkeys(("mean_return", "std_return", "min_return", "max_return", "mean_length"), -1e15 / 7),
    time=datetime.now(UTC),
)


def test_of_a_long_text_beginning_and_end_stay() -> None:
    text = shortened(TRACEBACK)

    assert len(text) == REPORTED_TEXT_MAX
    assert text.startswith("CheckpointError: the bucket refuses it\n")
    assert text.endswith("OSError: quota exceeded")
    assert " ... " in text, "what was cut is marked"
    assert shortened(text) == text, "the operator does not cut again what the learner has cut"


def test_the_learner_cuts_what_it_sends() -> None:
    condition = ReportedCondition(
        type="CheckpointHealthy", status="False", reason="Failed", message=TRACEBACK
    )
    warnings = tuple(Warning(reason="CheckpointSkipped", message=f"{i}{TRACEBACK}") for i in range(20))

    report = LearnerReport(conditions=(condition,), warnings=warnings, stop_reason=TRACEBACK)

    assert report.conditions[0].message == report.stop_reason == shortened(TRACEBACK)
    assert [warning.message[0] for warning in report.warnings] == list("01234567")


def test_a_report_of_a_learner_without_bounds_is_accepted_and_cut() -> None:
    old = {
        "progress": {"environmentSteps": 7},
        "conditions": [
            {"type": "CheckpointHealthy", "status": "False", "reason": "Failed", "message": TRACEBACK}
        ],
        "warnings": [{"reason": "A", "message": "m" * 5000}] * 30,
        "stopReason": TRACEBACK,
    }

    report = LearnerReport.model_validate_json(json.dumps(old))

    assert report.progress.environment_steps == 7
    assert report.conditions[0].message == shortened(TRACEBACK)
    assert len(report.warnings) == REPORTED_WARNINGS_MAX
    assert {len(warning.message) for warning in report.warnings} == {REPORTED_TEXT_MAX}


def test_a_report_in_which_everything_is_at_its_bound_is_short_enough_to_be_read() -> None:
    long = "語" * 10_000  # six bytes each, as the trainer writes JSON
    condition = {"type": "T" * 10_000, "status": "True", "reason": "R" * 10_000, "message": long}
    points = [CurvePoint(environment_steps=2**53, seconds=1e9 / 3, mean_return=-1e9 / 7)] * CURVE_POINTS_MAX
    report = LearnerReport(
        conditions=(ReportedCondition.model_validate(condition),) * 20,
        warnings=(Warning(reason="CheckpointSkipped", message=long),) * 20,
        curve=tuple(points),
        evaluation=EvaluationStatus(last=RESULT, best=RESULT, best_policy_uri="s3://" + "x" * 2200),
        checkpoint=CheckpointStatus(uri="s3://" + "x" * 2200, step=2**53, time=datetime.now(UTC)),
        policy_uri="s3://" + "x" * 2200,
    )

    assert len(json.dumps(report.to_dict())) < REPORT_BYTES_MAX
