"""Warnings that are known only after the last report."""

from __future__ import annotations

from rltraining_api.contract import REPORTED_WARNINGS_MAX, LearnerReport, Warning
from rltraining_trainer.roles.entry_point import with_warnings

BEFORE = Warning(reason="TrackingFailed", message="points cannot be sent")
AFTER = Warning(reason="TrackingFailed", message="3 points were not sent")
OTHER = tuple(Warning(reason=f"Other{index}", message="other") for index in range(REPORTED_WARNINGS_MAX - 1))


def test_the_last_report_has_what_was_lost_while_the_run_was_closed() -> None:
    report = LearnerReport(state="Finished", warnings=(BEFORE, *OTHER))
    assert with_warnings(report, (AFTER,)) == report.model_copy(update={"warnings": (AFTER, *OTHER)})
    assert with_warnings(report, ()) == report
    assert with_warnings(None, (AFTER,)) is None
