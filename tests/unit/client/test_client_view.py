"""The view as plain text, without colours."""

from __future__ import annotations

import dataclasses

import pytest
from command_line import drawn
from rltraining.plain import phase_line, progress_line
from rltraining.snapshot import EventRow, PodRow
from rltraining.view import PODS_SHOWN, render
from rltraining_api.evaluation import EvaluationResult, EvaluationStatus
from rltraining_api.status import ReplayStatus
from snapshots import PROGRESS, condition, snapshot

PODS = (
    PodRow("cartpole-learner-0", "Running", True, 0),
    PodRow("cartpole-sampler-0", "Running", False, 2, "exit code 1: cannot open [/data/maze]"),
)


def test_a_run_in_full() -> None:
    progress = PROGRESS | {"episodes": 2210, "model_version": 201, "percent": 25.0}
    created = EventRow(1, "Normal", "PodsCreated", "created two pods")
    events = (created, EventRow(2, "Warning", "Disrupted", "killed"))
    rest = {"eta_seconds": 9.0, "notice": "Stopping: …"}
    picture = snapshot(progress=progress, pods=PODS, events=events, **rest)
    assert drawn(render(picture, curve="<curve>")) == (
        """\
cartpole: impala on CartPole-v1  Running  00:03
━━━━━━━━━━                               25% about 00:09 left
steps 412,160   speed 251k/s   return 213.4   episodes 2,210   updates 201   lag 2.0   version 201

POD                  PHASE     READY   RESTARTS   WHY
cartpole-learner-0   Running   yes            0
cartpole-sampler-0   Running   no             2   exit code 1: cannot open [/data/maze]

<curve>

00:01  PodsCreated: created two pods
00:02  Disrupted: killed

Stopping: …"""
    )


def test_a_replay_memory_has_a_line_of_its_own() -> None:
    replay = ReplayStatus(
        shards=2, size=90_000, replay_ratio=0.8125, sample_age=41_200, priorities_applied=80_000, lost=6
    )
    lines = drawn(render(snapshot(replay=replay))).splitlines()
    told = "replay 90,000   shards 2   ratio 0.812   age 41.2k   priorities 80,000   stale 0   lost 6"
    assert lines[3] == told
    assert "replay 0   shards 0   ratio -" in drawn(render(snapshot(replay=ReplayStatus())))
    assert "replay" not in drawn(render(snapshot()))


def test_before_anything_is_known() -> None:
    lines = drawn(render(snapshot("Pending", message="waiting for memory"))).splitlines()
    assert lines[0] == "cartpole: impala on CartPole-v1  Pending  00:03  waiting for memory"
    assert lines[1] == "progress  -"
    assert "speed -" in lines[2]


def test_while_processes_load_it_is_said() -> None:
    pod = PodRow("cartpole-learner-0", "ContainerCreating", False, 0)
    creating = snapshot("Pending", message="waiting for pod cartpole-learner-0 to be ready", pods=(pod,))
    loading = "cartpole: impala on CartPole-v1  Pending  00:03  loading torch and the trainer"
    assert drawn(render(creating)).splitlines()[0] == loading
    assert phase_line(creating) == "00:03  Pending   loading torch and the trainer"
    assert progress_line(creating) == phase_line(creating)
    stuck = snapshot("Pending", message="no volume", pods=(dataclasses.replace(pod, why="no volume"),))
    assert phase_line(stuck) == "00:03  Pending   no volume"
    delayed = condition("Ready", status="False", reason="StartDelayed")
    late = snapshot("Pending", message="no container for 60 s", pods=(pod,), conditions=(delayed,))
    assert phase_line(late) == "00:03  Pending   no container for 60 s"


@pytest.mark.parametrize("number", [0, 1, PODS_SHOWN, PODS_SHOWN + 1, 300])
def test_of_many_pods_the_unready_ones_are_shown(number: int) -> None:
    pods = tuple(PodRow(f"s-{i}", "Running", i != number - 1, 0, "why not") for i in range(number))
    text = drawn(render(snapshot(pods=pods)))
    assert text.count("s-") == min(number, PODS_SHOWN)
    assert (f"s-{number - 1} " in text) == (number > 0)
    rest = max(0, number - PODS_SHOWN)
    assert (f"and {rest} more" in text) == (rest > 0)


def test_a_long_event_does_not_break_the_picture() -> None:
    events = (EventRow(1, "Warning", "Failed", "x" * 500),)
    assert max(map(len, drawn(render(snapshot(events=events)), width=80).splitlines())) <= 80


def test_evaluations_have_a_line_of_their_own() -> None:
    last = EvaluationResult(environment_steps=400_000, mean_return=487.2, std_return=12.5, mean_length=487.2)
    best = EvaluationResult(environment_steps=250_000, mean_return=495.0)
    told = "evaluation 487.2   at 400,000   std 12.5   length 487.2   best 495.0   best at 250,000"
    evaluated = snapshot(evaluation=EvaluationStatus(count=8, last=last, best=best))
    assert drawn(render(evaluated)).splitlines()[3] == told
    assert "evaluation" not in drawn(render(snapshot(evaluation=EvaluationStatus())))
