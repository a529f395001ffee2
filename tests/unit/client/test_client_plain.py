from __future__ import annotations

from io import BytesIO, TextIOWrapper

from rltraining.plain import event_line, phase_line, print_line, progress_line
from rltraining.snapshot import Eta, EventRow
from rltraining_api.evaluation import EvaluationResult, EvaluationStatus
from snapshots import PROGRESS, snapshot


def test_a_line_of_a_running_job() -> None:
    assert progress_line(snapshot(progress=PROGRESS)) == (
        "00:03  Running      412,160 steps   251k/s  return 213.4  lag 2.0  updates 201"
    )
    line = progress_line(snapshot(progress=PROGRESS | {"percent": 20.6}, restarts=1))
    assert line.endswith("updates 201  21%  1 restart")


def test_before_the_first_steps_there_is_a_reason_instead() -> None:
    assert progress_line(snapshot("Pending")) == "00:03  Pending   waiting for pods"
    assert progress_line(snapshot("Starting")) == "00:03  Starting  waiting for the first steps"
    assert progress_line(snapshot("Pending", message="no memory")).endswith("no memory")


def test_phases_and_events() -> None:
    assert phase_line(snapshot("Suspended", message="by you")) == "00:03  Suspended by you"
    assert phase_line(snapshot("Running")) == "00:03  Running"
    assert event_line(EventRow(61, "Warning", "Disrupted", "killed")) == "01:01  Warning   Disrupted: killed"
    assert event_line(EventRow(0, "Normal", "Created", "a, b")) == "00:00  Event     Created: a, b"


def test_time_left_follows_the_growth_since_this_run_was_started() -> None:
    eta = Eta()
    assert eta.update(100.0, None) is None
    assert eta.update(101.0, 40.0) is None, "a resumed run: nothing is known of its speed yet"
    assert eta.update(103.0, 60.0) == 4.0
    assert eta.update(105.0, 100.0) == 0.0


def test_a_learner_that_fell_back_to_its_checkpoint_begins_anew() -> None:
    eta = Eta()
    eta.update(0.0, 50.0)
    assert eta.update(10.0, 10.0) is None
    assert eta.update(20.0, 20.0) == 80.0


def test_the_last_evaluation_is_in_the_line() -> None:
    evaluation = EvaluationStatus(last=EvaluationResult(environment_steps=400_000, mean_return=487.2))
    assert "return 213.4  evaluation 487.2  lag" in progress_line(
        snapshot(progress=PROGRESS, evaluation=evaluation)
    )


def test_what_the_output_cannot_encode_is_escaped() -> None:
    out = TextIOWrapper(BytesIO(), encoding="ascii")
    print_line("runs/\u00fcber  3 \u00b1 1", out)
    assert out.buffer.getvalue() == b"runs/\\xfcber  3 \\xb1 1\n"  # type: ignore[attr-defined]
