"""Termination messages are always JSON within Kubernetes' limit, and keep the first line and the end."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rltraining_api.contract import (
    ENV_TERMINATION_LOG,
    LearnerReport,
    ReportedCondition,
    TerminationMessage,
    Warning,
)
from rltraining_api.curve import CURVE_POINTS_MAX, CurvePoint
from rltraining_api.evaluation import EvaluationResult, EvaluationStatus
from rltraining_api.status import CheckpointStatus, Progress, ReplayStatus
from rltraining_trainer.roles.termination import LIMIT, termination_message, write_termination_message

REPORT = LearnerReport(state="Finished", progress=Progress(environment_steps=5), stop_reason="enough")
ANY_TEXT = st.text(st.characters(), max_size=300)  # surrogates too
MULTIPLIED = st.builds(lambda text, n: text * n, ANY_TEXT, st.sampled_from([1, 1, 7, 100]))


def read(content: str) -> TerminationMessage:
    assert len(content.encode()) <= LIMIT
    return TerminationMessage.model_validate_json(content)


@given(first=MULTIPLIED, trace=MULTIPLIED, report=st.sampled_from([None, REPORT]))
def test_any_text_fits(first: str, trace: str, report: LearnerReport | None) -> None:
    first = first.replace("\n", " ")

    message = read(termination_message("Error", f"{first}\n{trace}", report))

    assert message.reason == "Error"
    assert message.report == report, "the report is there whatever the text"
    kept_first = message.message.partition("\n")[0]
    assert first.encode(errors="backslashreplace").decode().startswith(kept_first)
    assert kept_first or not first, "a first line that is there stays, at least its beginning"


@given(
    first=st.text('abc "é', min_size=1, max_size=900),
    lines=st.integers(0, 30_000),
    unit=st.sampled_from(["x\n", "\x01", "语", "\n"]),
)
def test_the_first_line_and_the_end_of_the_traceback_stay(first: str, lines: int, unit: str) -> None:
    end = "ValueError: the end"

    message = read(termination_message("UserCodeError", f"{first}\n{unit * lines}{end}")).message

    assert message.startswith(f"{first}\n")
    assert message.endswith(end)
    if f"{first}\n{unit * lines}{end}" != message:
        assert message[len(first) + 1 :].startswith("..."), "what was cut is marked"


def test_what_is_no_unicode_is_escaped() -> None:
    file_name = b"/data/\xff".decode(errors="surrogateescape")
    assert read(termination_message("Error", f"no {file_name}")).message == "no /data/\\udcff"


def test_as_much_as_fits_is_kept() -> None:
    for unit, size in (("x", 1), ("语", 3), ("\n", 2), ("\x01", 6)):
        content = termination_message("Error", "first\n" + unit * 10_000)
        assert LIMIT - size < len(content.encode()) <= LIMIT, repr(unit)


def test_text_that_fits_is_left_alone() -> None:
    assert read(termination_message("Error", "a sentence\nand\tmore")).message == "a sentence\nand\tmore"


def test_a_long_sentence_alone_is_cut_at_its_end() -> None:
    message = read(termination_message("BadConfiguration", "ab" * 5000)).message
    assert "ab" * 5000 > message > "ab" * 2000


def test_a_report_that_says_too_much_keeps_its_figures() -> None:
    warnings = tuple(Warning(reason="CheckpointSkipped", message="x" * 300) for _ in range(30))
    condition = ReportedCondition(type="CheckpointHealthy", status="False", reason="Full", message="y" * 300)
    report = REPORT.model_copy(update={"warnings": warnings, "conditions": (condition,)})

    message = read(termination_message("Completed", "enough", report))

    assert message.message == "enough"
    assert message.report == REPORT


def test_of_a_long_curve_the_report_keeps_points_of_all_parts() -> None:
    points = tuple(
        CurvePoint(environment_steps=10**9 * i, seconds=3600.0 * i, mean_return=-123.4567)
        for i in range(CURVE_POINTS_MAX)
    )
    condition = ReportedCondition(type="CheckpointHealthy", status="True", reason="Written", message="y" * 99)
    report = REPORT.model_copy(update={"curve": points, "conditions": (condition,)})

    kept = read(termination_message("Completed", "enough " * 99, report)).report

    assert kept is not None
    assert kept.conditions == (condition,), "the curve gives way first"
    assert 20 <= len(kept.curve) < CURVE_POINTS_MAX
    assert (kept.curve[0], kept.curve[-1]) == (points[0], points[-1])
    assert set(kept.curve) <= set(points)


def test_a_report_of_everything_that_a_run_can_have_is_kept_with_a_curve() -> None:
    curve = tuple(
        CurvePoint(environment_steps=10**9 + i, seconds=3600.25 * i, mean_return=-123.4567)
        for i in range(CURVE_POINTS_MAX)
    )
    now, store = datetime.now(UTC), "s3://bucket/experiments/of/a/team/with-a-long-name"
    result = EvaluationResult(
        environment_steps=10**9,
        seconds=123456.78,
        episodes=100,
        **dict.fromkeys(("mean_return", "std_return", "min_return", "max_return"), -12345.6789),
        mean_length=123456.7,
        time=now,
    )
    evaluation = EvaluationStatus(
        count=1000, merged=1000, last=result, best=result, best_policy_uri=f"{store}/policy/best"
    )
    counts = ("size", "inserted", "evicted", "lost", "sampled", "priorities_applied", "priorities_stale")
    report = LearnerReport(
        state="Finished",
        progress=Progress(environment_steps=10**9, episodes=10**7, updates=10**7, model_version=10**7),
        curve=curve,
        evaluation=evaluation,
        replay=ReplayStatus(
            shards=64, **dict.fromkeys(counts, 10**9), replay_ratio=1 / 3, sample_age=1e8 / 3
        ),
        checkpoint=CheckpointStatus(uri=f"{store}/checkpoints/step-001000000000", step=10**9, time=now),
        policy_uri=f"{store}/policy",
        stop_reason="stop.evaluation is met: " + "x" * 100,
        time=now,
    )
    kept = read(termination_message("Completed", "enough", report)).report
    assert kept is not None
    assert len(kept.curve) >= 8
    assert kept.model_copy(update={"curve": curve}) == report, "only the curve gave way"


def test_a_report_of_any_size_comes_to_an_end() -> None:
    report = REPORT.model_copy(update={"policy_uri": "file:///" + "x" * 5000})

    message = read(termination_message("Completed", "enough", report))

    assert (message.message, message.report) == ("enough", None)


def test_it_is_written_where_the_operator_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log"
    monkeypatch.setenv(ENV_TERMINATION_LOG, str(path))

    write_termination_message("Completed", "genug für heute", REPORT)

    assert read(path.read_text(encoding="utf-8")).message == "genug für heute"


def test_where_it_cannot_be_written_the_process_still_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(ENV_TERMINATION_LOG, str(tmp_path / "no" / "such"))
    write_termination_message("Completed", "enough")
    assert "could not be written" in caplog.text

    monkeypatch.delenv(ENV_TERMINATION_LOG)
    write_termination_message("Completed", "enough")
