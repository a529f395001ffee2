"""Termination messages of pods with several containers: the kubelet keeps 12 KiB for all of them."""

from __future__ import annotations

import pytest
from operator_world import LEARNER, SAMPLER_0, make_world, report, termination
from rltraining_operator.failures.pod_failure import parse_termination_message

KUBELET_BYTES = 12 << 10
STORE = "s3://bucket/demo"
POINT = {"environmentSteps": 123_456, "seconds": 1234.567, "meanReturn": 123.4567891}
DONE = report(
    1000,
    "Finished",
    curve=[POINT] * 30,
    policyUri=f"{STORE}/policy",
    stopReason="stop.environmentSteps is reached",
)
MESSAGE = termination("Completed", "stop.environmentSteps is reached", DONE)


def cut(text: str, containers: int) -> str:
    return text[: KUBELET_BYTES // containers]


@pytest.mark.parametrize("containers", [1, 5, 6, 8])
def test_a_learner_with_several_sidecars_is_done(containers: int) -> None:
    world = make_world(checkpoint={"uri": "s3://bucket"}).up().after(100)
    world.die(LEARNER, 0, "Completed", cut(MESSAGE, containers)).die(SAMPLER_0, 0).settle()
    world.after(20).settle().end_deleted().settle()
    assert (world.status.phase, world.status.failures) == ("Succeeded", 0)
    assert world.status.message == "stop.environmentSteps is reached"
    assert world.status.progress.environment_steps == 1000
    assert world.status.policy_uri == f"{STORE}/policy"


def test_the_error_of_user_code_is_found_in_a_cut_message() -> None:
    world = make_world().up()
    message = termination("UserCodeError", "KeyError: no such key\n" + "a traceback\n" * 300)
    world.die(SAMPLER_0, 66, "Error", cut(message, 5)).settle()
    assert world.condition("FailureTarget") == ("True", "UserCodeError")
    assert world.status.message == f"{SAMPLER_0}: KeyError: no such key"


def test_wherever_a_message_is_cut_it_tells_nothing_wrong() -> None:
    for length in range(len(MESSAGE)):
        found = parse_termination_message(MESSAGE[:length])
        if found is None:
            assert length < len('{"reason": "Completed", "message": "')
            continue
        assert found.reason == "Completed"
        assert DONE.stop_reason is not None
        assert DONE.stop_reason.startswith(found.message)
        if found.report is not None:
            assert found.report.progress == DONE.progress
            assert found.report.state == "Finished"
            assert found.report.policy_uri in (None, DONE.policy_uri)


@pytest.mark.parametrize(
    "text", ["", "[1, 2", '"', "{", '{"reason": "A"', "Killed", '{"reason": "A", "message": 1']
)
def test_other_text_is_no_message(text: str) -> None:
    assert parse_termination_message(text) is None
