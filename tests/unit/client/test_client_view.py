"""The view as plain text: what a person sees, without the colours."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from rich.console import Console
from rltraining.plain import phase_line, progress_line
from rltraining.snapshot import EventRow, PodRow, Snapshot
from rltraining.view import PODS_SHOWN, render
from rltraining_api.status import Condition, ReplayStatus

SnapshotMaker = Callable[..., Snapshot]

PODS = (
    PodRow("cartpole-learner-0", "Running", True, 0),
    PodRow("cartpole-sampler-0", "Running", False, 2, "restarting after exit code 137"),
)


def drawn(picture: object, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None, legacy_windows=False)
    console.print(picture)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in text.splitlines())


def test_a_run_in_full(snapshot: SnapshotMaker) -> None:
    progress = {
        "environment_steps": 412_160,
        "episodes": 2210,
        "updates": 201,
        "model_version": 201,
        "mean_return": 213.44,
        "steps_per_second": 251_412.0,
        "percent": 25.0,
        "policy_lag": 2.04,
    }
    picture = snapshot(
        progress=progress,
        pods=PODS,
        events=(
            EventRow(1, "Normal", "PodsCreated", "created two pods"),
            EventRow(2, "Warning", "Disrupted", "killed"),
        ),
        eta_seconds=9.0,
    )
    assert drawn(render(picture, curve="<curve>")) == (
        """\
cartpole: impala on CartPole-v1  Running  00:03
━━━━━━━━━━                               25% about 00:09 left
steps 412,160   speed 251k/s   return 213.4   episodes 2,210   updates 201   lag 2.0   version 201

POD                  PHASE     READY   RESTARTS   WHY
cartpole-learner-0   Running   yes            0
cartpole-sampler-0   Running   no             2   restarting after exit code 137

<curve>

00:01  PodsCreated: created two pods
00:02  Disrupted: killed"""
    )


def test_brackets_in_what_a_process_says_are_text(snapshot: SnapshotMaker) -> None:
    pod = PodRow("cartpole-learner-0", "Running", False, 1, "exit code 1: cannot open [/data/maze]")
    assert "cannot open [/data/maze]" in drawn(render(snapshot(pods=(pod,))))


def test_a_replay_memory_has_a_line_of_its_own(snapshot: SnapshotMaker) -> None:
    replay = ReplayStatus(
        shards=2, size=90_000, replay_ratio=0.8125, sample_age=41_200, priorities_applied=80_000, lost=6
    )
    lines = drawn(render(snapshot(replay=replay))).splitlines()
    assert (
        lines[3]
        == "replay 90,000   shards 2   ratio 0.812   age 41.2k   priorities 80,000   stale 0   lost 6"
    )
    assert (
        drawn(render(snapshot(replay=ReplayStatus())))
        .splitlines()[3]
        .startswith("replay 0   shards 0   ratio -")
    )
    assert drawn(render(snapshot())).count("replay") == 0


def test_before_anything_is_known(snapshot: SnapshotMaker) -> None:
    lines = drawn(render(snapshot("Pending", message="waiting for memory"))).splitlines()
    assert lines[0] == "cartpole: impala on CartPole-v1  Pending  00:03  waiting for memory"
    assert lines[1] == "progress  -"
    assert "speed -" in lines[2]


def test_while_processes_load_it_is_said(snapshot: SnapshotMaker) -> None:
    pod = PodRow("cartpole-learner-0", "ContainerCreating", False, 0)
    creating = snapshot("Pending", message="waiting for pod cartpole-learner-0 to be ready", pods=(pod,))
    loading = "cartpole: impala on CartPole-v1  Pending  00:03  loading torch and the trainer"
    assert drawn(render(creating)).splitlines()[0] == loading
    assert phase_line(creating) == "00:03  Pending   loading torch and the trainer"
    assert progress_line(creating) == phase_line(creating)
    stuck = snapshot("Pending", message="no volume", pods=(dataclasses.replace(pod, why="no volume"),))
    assert phase_line(stuck) == "00:03  Pending   no volume"
    delayed = Condition(
        type="Ready", status="False", reason="StartDelayed", last_transition_time=datetime.now(UTC)
    )
    late = snapshot("Pending", message="no container for 60 s", pods=(pod,), conditions=(delayed,))
    assert phase_line(late) == "00:03  Pending   no container for 60 s"


def test_the_notice_comes_last(snapshot: SnapshotMaker) -> None:
    assert drawn(render(snapshot(notice="Stopping: …"))).splitlines()[-1] == "Stopping: …"


@pytest.mark.parametrize("number", [0, 1, PODS_SHOWN, PODS_SHOWN + 1, 300])
def test_of_many_pods_those_in_trouble_are_shown(snapshot: SnapshotMaker, number: int) -> None:
    pods = tuple(PodRow(f"s-{i}", "Running", i != number - 1, 0, "why not") for i in range(number))
    text = drawn(render(snapshot(pods=pods)))
    assert text.count("s-") == min(number, PODS_SHOWN)
    assert (f"s-{number - 1} " in text) == (number > 0)
    rest = max(0, number - PODS_SHOWN)
    assert (f"and {rest} more" in text) == (rest > 0)


def test_a_long_event_does_not_break_the_picture(snapshot: SnapshotMaker) -> None:
    events = (EventRow(1, "Warning", "Failed", "x" * 500),)
    assert max(map(len, drawn(render(snapshot(events=events)), width=80).splitlines())) <= 80
