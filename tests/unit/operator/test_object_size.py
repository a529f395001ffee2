"""The job's object stays small and keeps its useful parts, whatever pods report and however often."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from operator_world import LEARNER, SAMPLER_0, World, make_world, termination
from rltraining_api.contract import LearnerReport
from rltraining_operator.observe.answers import parse_report
from rltraining_operator.status.bounds import OBJECT_BYTES_MAX, clip, json_bytes
from soak import SOAK

PODS = 250
HOSTILE = ["<", "\x00", '"', "\n", "語", "\U0001f600", "x", "\u2028", "a\n<module>\n"]
EVALUATION = {
    "environmentSteps": 2**53,
    "seconds": 1.2345678901234567e300,
    "episodes": 2**31 - 1,
    **dict.fromkeys(
        ("meanReturn", "stdReturn", "minReturn", "maxReturn", "meanLength"), -1.2345678901234567e-300
    ),
    "time": "2026-01-01T00:00:00.000001Z",
}


def stored_bytes(found: Any) -> int:
    """Returns the size of an object in etcd, in bytes: JSON as Go writes it."""
    text = json.dumps(found, separators=(",", ":"), ensure_ascii=False)
    return len(text.encode()) + sum(5 for c in text if c in "<>&") + 3 * text.count("\u2028")


def hostile_report(unit: str, number: int, state: str) -> LearnerReport:
    """Returns a report with every field at its bound, or beyond where it is truncated."""
    long, uri = unit * 4096, "s3://" + (unit.strip() or "x") * (4090 // len(unit))
    raw = {
        "state": state,
        "incarnation": long,
        "progress": dict.fromkeys(("environmentSteps", "episodes", "updates", "modelVersion"), 2**53)
        | dict.fromkeys(
            (
                "meanReturn",
                "stepsPerSecond",
                "receivedBytesPerSecond",
                "sentBytesPerSecond",
                "percent",
                "policyLag",
                "policyLagP50",
                "policyLagP99",
            ),
            -1.2345678901234567e-300,
        )
        | {"learnerWaitPercent": 1.2345678901234567e300},
        "curve": [
            {
                "environmentSteps": 2**53 - i,
                "seconds": 1.2345678901234567e300,
                "meanReturn": -1.2345678901234567e300,
            }
            for i in range(100, 0, -1)
        ],
        "replay": {
            "size": 2**53,
            "inserted": 2**53,
            "sampled": 2**53,
            "replayRatio": -1.2345678901234567e300,
        },
        "evaluation": dict.fromkeys(("count", "merged", "restarts", "withoutImprovement"), 2**31 - 1)
        | {"last": EVALUATION, "best": EVALUATION, "bestPolicyUri": uri[:4096]},
        "checkpoint": {"uri": uri[:4096], "step": 2**53, "time": "2026-01-01T00:00:00Z"},
        "policyUri": uri[:4096],
        "stopReason": long,
        "conditions": [
            {"type": f"{t}{number}-{i}", "status": "True", "reason": "R" * 128, "message": long}
            for i in range(12)
            for t in ("T" * 40, unit * 300, "Complete")
        ],
        "warnings": [{"reason": f"R{number}x{i}", "message": long} for i in range(32)],
    }
    return LearnerReport.model_validate(raw)


def size(world: World) -> int:
    return stored_bytes(world.job)


@settings(max_examples=6 * SOAK)  # each has dozens of passes
@given(
    unit=st.sampled_from(HOSTILE),
    rounds=st.integers(1, 3),
    code=st.sampled_from([1, 65, 137]),
    raw=st.booleans(),
)
def test_the_object_stays_below_64_kib_whatever_pods_report(
    unit: str, rounds: int, code: int, raw: bool
) -> None:
    world = make_world(sampler={"replicas": 3}).up()
    for number in range(rounds):
        world.after(6).say(hostile_report(unit, number, "Training")).settle()
        assert size(world) < OBJECT_BYTES_MAX
    text = unit * (4096 // len(unit.encode()))
    while len((message := text if raw else termination("R" * 100, text)).encode()) > 4096:
        text = text[: len(text) - 64]
    world.die(SAMPLER_0, code, message=message).settle()
    world.die(LEARNER, code, message=message).settle()
    world.end_deleted().settle()
    assert size(world) < OBJECT_BYTES_MAX


def test_and_with_hundreds_of_pods_that_have_all_restarted_and_all_say_much() -> None:
    world = make_world(sampler={"replicas": PODS}, runPolicy={"backoffLimit": 10_000}).up()
    for name in list(world.pods):
        world.crash(name, 1, message="<" * 4096)
    world.after(6).say(hostile_report("<", 0, "Training")).settle()
    assert len(world.status.ledger) == PODS + 1
    assert len(world.status.warnings) == 8, "it has taken the report"
    assert size(world) < OBJECT_BYTES_MAX


def test_reported_warnings_take_no_more_room_than_they_are_given() -> None:
    """The warnings get 5 of the 49 KiB that the parts of a status share."""
    message = "<" * 30 + "x" * 480  # the longest text that a report may contain, which escaping makes longer
    said = {"state": "Training", "warnings": [{"reason": f"R{i}", "message": message} for i in range(9)]}
    world = make_world().up().after(6).say(LearnerReport.model_validate(said)).settle()
    assert sum(map(json_bytes, world.status.warnings)) == 5 << 10


def test_conditions_that_change_their_types_do_not_pile_up() -> None:
    world = make_world().up()
    for number in range(20):
        world.after(6).say(hostile_report("<", number, "Training")).settle()
    assert size(world) < OBJECT_BYTES_MAX
    assert len(world.status.conditions) < 20


def test_the_traceback_of_user_code_is_in_the_status_whole() -> None:
    frames = "".join(f'  File "/code/maze.py", line {i}, in step\n    self.move({i})\n' for i in range(50))
    trace = f"step raised KeyError: 'x'\nTraceback (most recent call last):\n{frames}KeyError: 'x'"
    assert 3000 < len(termination("UserCodeError", trace)) <= 4096, "as the trainer writes it"
    world = make_world().up().die(SAMPLER_0, 65, message=termination("UserCodeError", trace)).settle()
    world.end_deleted().settle()
    (failed,) = (each for each in world.status.conditions if each.type == "Failed")
    assert failed.message == f"{SAMPLER_0}: {trace}"
    assert world.status.message == f"{SAMPLER_0}: step raised KeyError: 'x'"


@given(
    st.lists(st.sampled_from([*HOSTILE, "ab", "Error: "]), max_size=200).map("".join), st.integers(16, 2000)
)
def test_a_text_is_clipped_to_its_room_and_keeps_both_ends(text: str, most: int) -> None:
    clipped = clip(text, most)
    assert json_bytes(clipped) <= most
    assert clip(clipped, most) == clipped, "a status that is read again is not cut again"
    assert json_bytes(text) == stored_text_bytes(text)
    if clipped == text:
        return
    head, _, tail = clipped.partition(" ... ")
    assert text.startswith(head)
    assert text.endswith(tail)
    assert json_bytes(clipped) > most - 20, "as much as fits"


def stored_text_bytes(text: str) -> int:
    return stored_bytes(text) - 2


@pytest.mark.parametrize("uri", ["s3://b/demo/" + "<" * 4000, "s3://b/demo/" + "x" * 3000])
def test_a_uri_that_is_too_long_is_not_taken_over(uri: str) -> None:
    world = make_world(checkpoint={"uri": "s3://b"}).up()
    stored = {"uri": "s3://b/demo/checkpoints/1", "step": 1, "time": "2026-01-01T00:00:00Z"}
    for report in (
        {
            "checkpoint": stored,
            "policyUri": "s3://b/demo/policy",
            "evaluation": {"bestPolicyUri": "s3://b/demo/policy/best"},
        },
        {
            "checkpoint": stored | {"uri": uri},
            "policyUri": uri,
            "evaluation": {"count": 2, "bestPolicyUri": uri},
        },
    ):
        said = parse_report(json.dumps({"state": "Training"} | report).encode())
        assert isinstance(said, LearnerReport)
        world.after(6).say(said).settle()
    assert world.status.policy_uri == "s3://b/demo/policy"
    assert world.status.evaluation is not None
    assert (world.status.evaluation.count, world.status.evaluation.best_policy_uri) == (2, None)
    assert world.status.checkpoint is not None
    assert world.status.checkpoint.uri == stored["uri"]
