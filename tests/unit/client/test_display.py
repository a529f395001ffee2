from __future__ import annotations

import errno
import io
import sys
from datetime import UTC, datetime
from signal import SIGINT

import pytest
from rltraining.display import Picture, Plain, choose
from rltraining.snapshot import EventRow, PodRow, Snapshot
from rltraining.sweep.display import Lines, LiveTable
from rltraining.sweep.snapshot import SweepSnapshot, row_of
from rltraining_api.curve import CurvePoint
from snapshots import condition, snapshot

STEPS = {"environment_steps": 1000, "mean_return": 20.0, "policy_lag": 1.0, "updates": 5}


def shown(*snapshots: Snapshot) -> list[str]:
    out = io.StringIO()
    display = choose(out, plain=False)  # no terminal
    assert isinstance(display, Plain)
    for each in snapshots:
        display.show(each)
    display.close()
    return out.getvalue().splitlines()


def test_phases_are_told_at_once_and_progress_every_two_seconds() -> None:
    times = [0.0, 0.25, 1.0, 1.25, 2.9, 3.1, 3.3, 5.0, 5.2]
    phases = ["Pending", "Pending", "Running", *["Running"] * 6]
    made = [
        snapshot(p, elapsed=t, progress=STEPS | {"updates": n})
        for n, (t, p) in enumerate(zip(times, phases, strict=True))
    ]
    lines = shown(*made)
    told = "00:00  Pending 00:01  Running 00:03  Running 00:05  Running"
    assert " ".join(line[:16].rstrip() for line in lines) == told
    assert "1,000 steps" in lines[-1]


def test_what_has_not_changed_is_said_again_after_half_a_minute() -> None:
    lines = shown(*(snapshot("Starting", message="waiting", elapsed=t) for t in range(70)))
    assert lines == ["00:00  Starting  waiting", "00:30  Starting  waiting", "01:00  Starting  waiting"]


def test_an_event_is_told_once_and_again_when_it_comes_again() -> None:
    killed = EventRow(1, "Warning", "Disrupted", "killed")
    again = EventRow(2, "Warning", "Disrupted", "killed", count=2)
    other = EventRow(2, "Normal", "Running", "1/1\nTraceback\n  File")
    lines = shown(snapshot(events=(killed,)), snapshot(events=(killed,)), snapshot(events=(again, other)))
    assert [line for line in lines if "Disrupted" in line or "1/1" in line] == [
        "00:01  Warning   Disrupted: killed",
        "00:02  Warning   Disrupted: killed (2 times)",
        "00:02  Event     Running: 1/1",
    ]


def test_equal_events_of_two_writers_are_told_once_each() -> None:
    """Each operator counts its own events, so the count of a new leader starts at one."""
    before = EventRow(1, "Normal", "Running", "1/1", count=2)
    after = EventRow(5, "Normal", "Running", "1/1")
    lines = [line for line in shown(*[snapshot(events=(before, after))] * 3) if "1/1" in line]
    assert lines == ["00:01  Event     Running: 1/1 (2 times)", "00:05  Event     Running: 1/1"]


def test_a_stop_is_told_in_words_of_who_has_asked_for_it() -> None:
    pod = PodRow("cartpole-learner-0", "Terminating", False, 0)
    lines = shown(
        snapshot("Running", pods=(pod,), signal=SIGINT, notice="Stopping: …"),
        snapshot("Suspended", message="suspended; …", pods=(pod,), signal=SIGINT, notice="Stopping: …"),
        snapshot("Suspended", message="suspended; …", signal=SIGINT),
    )
    assert lines == ["Stopping: …", "00:03  Stopping  by Ctrl-C", "00:03  Stopped   by Ctrl-C"]
    over = snapshot("Succeeded", message="stop is met", signal=SIGINT, completion_time=datetime.now(UTC))
    assert shown(over) == ["00:03  Succeeded stop is met"], "it was over before it could be stopped"


def test_the_error_that_ends_a_job_is_left_to_the_command_that_prints_it_in_full() -> None:
    """In plain mode the error would be in two events and a phase as well."""
    error = "demo-sampler-0: environment 'Maze-v0': step raised ValueError: no exit"
    ended = EventRow(
        4, "Warning", "MemberFailed", f"pod {error.replace(':', ', container trainer: exit code 2:', 1)}"
    )
    failed = EventRow(5, "Warning", "UserCodeError", f"{error}\nTraceback")
    other = EventRow(5, "Normal", "PodsDeleted", "deleted demo-learner-0")
    ending = condition("FailureTarget", f"{error}\nTraceback")
    over = condition("Failed", f"{error}\nTraceback")
    lines = shown(
        snapshot("Running", message="all pods are ready"),
        snapshot(events=(ended,), message=error, conditions=(ending,), elapsed=6.0),
        snapshot(
            "Failed", events=(ended, other, failed), message=error, conditions=(ending, over), elapsed=9
        ),
    )
    assert lines == [
        "00:03  Running   all pods are ready",
        "00:06  Running   ending the other processes",
        "00:05  Event     PodsDeleted: deleted demo-learner-0",
        "00:09  Failed",
    ]


def test_an_earlier_failure_is_shown_although_the_job_ends_with_a_later_one() -> None:
    first = EventRow(1, "Warning", "MemberFailed", "pod demo-sampler-0: exit code 1: KeyError")
    message = "4 failures are more than runPolicy.backoffLimit 3; pod demo-sampler-1: exit code 1"
    last = condition("Failed", message)
    lines = shown(snapshot(events=(first,)), snapshot("Failed", events=(first,), conditions=(last,)))
    assert lines[0] == "00:01  Warning   MemberFailed: pod demo-sampler-0: exit code 1: KeyError"
    assert lines[-1] == "00:03  Failed"


class Broken(io.StringIO):
    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def flush(self) -> None:
        raise OSError(self._number, "broken")  # of the class that belongs to the number


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_full_disk_below_the_lines_or_a_terminal_that_is_gone_stops_no_training(number: int) -> None:
    Plain(Broken(number)).show(snapshot())
    Lines(Broken(number)).show(SweepSnapshot("a sweep", (row_of("seed=0", snapshot()),), 0.0))
    with pytest.raises(BrokenPipeError):  # the reader has closed the pipe
        Plain(Broken(errno.EPIPE)).show(snapshot())


class Terminal(Broken):
    there = True

    def isatty(self) -> bool:
        return True

    def flush(self) -> None:
        if not self.there:
            super().flush()


def test_pictures_on_a_terminal_that_is_gone_stop_no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Terminal(errno.EIO)
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setenv("TERM", "xterm")
    picture = Picture()
    picture.show(snapshot())
    out.there = False
    picture.show(snapshot())
    picture.close()
    out.there = True
    table = LiveTable()
    table.show(SweepSnapshot("a sweep", (row_of("seed=0", snapshot()),), 0.0))
    out.there = False
    table.close()
    assert sys.stdout is out


def test_whoever_looks_late_sees_the_whole_curve_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    points = (0, 500_000, 900_000)
    curve = tuple(CurvePoint(environment_steps=n, seconds=n / 1e5, mean_return=n / 2e3) for n in points)
    picture = Picture()
    picture.show(snapshot(progress=STEPS, curve=curve))
    picture.close()
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("450┤") for line in lines)
    assert lines[-1].split() == ["0", "300k", "600k", "900k"]
