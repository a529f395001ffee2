"""Decides when the report of the first learner is requested and copied into the status. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from rltraining_api.bottleneck import find_bottleneck
from rltraining_api.contract import LearnerReport, Warning
from rltraining_api.curve import joined
from rltraining_api.job import RLTrainingJob
from rltraining_api.status import Status
from rltraining_api.stores import is_below, store_of

from rltraining_operator.failures.endings import report_of_first_learner
from rltraining_operator.failures.pod_failure import REASON
from rltraining_operator.observe.observed import Observed
from rltraining_operator.settings import UNREACHABLE_SECONDS, Settings
from rltraining_operator.status.blocked import (
    SILENT,
    UNREACHABLE,
    UNREACHABLE_LOCALLY,
    BlockedReason,
    bad_report,
)
from rltraining_operator.status.bounds import REPORTED_BYTES_MAX, URI_BYTES_MAX, clip, json_bytes
from rltraining_operator.status.conditions import Conditions


def report_due_at(status: Status, settings: Settings) -> datetime | None:
    """Returns when the report of a running learner is due, or None for immediately. Copying reports
    more often would cause a write of the status each time, and each write triggers the next
    pass."""
    if status.report_time is None:
        return None
    return status.report_time + timedelta(seconds=settings.progress_seconds)


def is_report_due(status: Status, now: datetime, settings: Settings) -> bool:
    """Returns whether the report of a running learner is due. A report from the future is out of
    date: the clock was set back, or belongs to another machine than the previous leader's."""
    if status.report_time is not None and status.report_time > now:
        return True
    due = report_due_at(status, settings)
    return due is None or due <= now


def take_report(
    job: RLTrainingJob,
    observed: Observed,
    status: Status,
    conditions: Conditions,
    settings: Settings,
    *,
    over: bool,
) -> tuple[Status, Conditions]:
    """Copies the report of the first learner into the status and the conditions. Progress decreases only
    if a learner reports that after it has restored its state, not while it starts.

    Copies the report in a termination message, and the report of a running learner if it is due or
    the job is `over`.
    """
    # Skip missing reports, and reports that are not due.
    report, now = report_of_first_learner(observed), conditions.now
    lives = observed.report is not None
    if report is None or (lives and not over and not is_report_due(observed.status, now, settings)):
        return status, conditions
    # Copy the reported conditions and fields.
    lifted = conditions.lift(report.conditions)
    update = {} if report.state == "Starting" else _fields(report, status, store_of(job), lives)
    # Record when the report changed, and when training advanced.
    news = lifted != conditions or any(getattr(status, name) != value for name, value in update.items())
    if lives and news:
        update["report_time"] = now
    advanced = "progress" in update and _steps(report) != status.progress.environment_steps
    if advanced and status.start_time is not None:  # a suspended job makes no progress
        update["progress_time"] = now
    status = status.model_copy(update=update)
    # Name the bottleneck according to the copied progress.
    if "progress" in update:
        bottleneck = find_bottleneck(job.model_copy(update={"status": status}), settings.cores)
        status = status.model_copy(update={"bottleneck": bottleneck})
    return status, lifted


def find_silence(observed: Observed, now: datetime, settings: Settings) -> BlockedReason | None:
    """Returns why the state of the first learner is unknown, or None: the learner is ready and was
    asked, but has not answered with a report for a while.

    Keeps the previous reason while the first answer, or the first in a while, is outstanding, as
    after an operator restart.
    """
    status, pod = observed.status, observed.first_learner
    asked = pod is not None and pod.ready and pod.running and is_report_due(status, now, settings)
    if pod is None or not asked or observed.report is not None:
        return None
    if observed.awaited:
        said = Conditions(status.conditions, observed.generation, now).get("Progressing")
        if said is None or said.reason not in SILENT:
            return None
        return BlockedReason(said.reason, said.message)
    since = (status.report_time, status.progress_time, pod.ready_at)
    last = max((when for when in since if when is not None), default=now)
    if now - last < timedelta(seconds=UNREACHABLE_SECONDS):
        return None
    if observed.bad_report:
        return bad_report(observed.bad_report)
    return UNREACHABLE_LOCALLY if settings.one_machine else UNREACHABLE


def _fields(report: LearnerReport, status: Status, store: str, lives: bool) -> dict[str, Any]:
    checkpoint, evaluation = report.checkpoint, report.evaluation
    if evaluation is not None:
        best_policy = _policy(evaluation.best_policy_uri, store)
        evaluation = evaluation.model_copy(update={"best_policy_uri": best_policy})
    curve = report.curve if lives else joined(status.curve, report.curve, _steps(report))
    return {
        "preset": report.preset or status.preset,
        "progress": report.progress,
        "curve": curve,
        "replay": report.replay or status.replay,
        "evaluation": evaluation or status.evaluation,
        "checkpoint": checkpoint if checkpoint and _fits(checkpoint.uri) else status.checkpoint,
        "policy_uri": _policy(report.policy_uri, store) or status.policy_uri,
        "warnings": tuple(map(_warning, report.warnings)),
    }


def _policy(uri: str | None, store: str) -> str | None:
    """Returns the URI of a policy, or None if it is too long, or outside the job's storage, where clients
    must not read."""
    return uri if uri and _fits(uri) and is_below(uri, store) else None


def _fits(uri: str) -> bool:
    return bool(uri) and json_bytes(uri) <= URI_BYTES_MAX


def _warning(warning: Warning) -> str:
    reason = warning.reason if REASON.fullmatch(warning.reason) else "Reported"
    return clip(f"{reason}: {warning.message}", REPORTED_BYTES_MAX)


def _steps(report: LearnerReport) -> int:
    return report.progress.environment_steps
