"""Unexpected objects: a status that cannot be read, pods without labels, and pods of strangers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from operator_world import LEARNER, START, World, make_world
from rltraining_api.names import KIND
from rltraining_operator.cluster import Ref
from rltraining_operator.observe.observed import Observed
from rltraining_operator.observe.stored_status import read_status
from rltraining_operator.plan import plan_invalid

GOOD = {
    "type": "Complete",
    "status": "True",
    "reason": "Done",
    "message": "",
    "lastTransitionTime": START.isoformat(),
}


@pytest.mark.parametrize(
    ("raw", "phase", "conditions", "said"),
    [
        (None, "Pending", 0, ""),
        ({"phase": "Running", "newer": {"field": 1}}, "Running", 0, ""),
        ({"phase": "Dreaming", "conditions": [GOOD]}, "Pending", 1, "are rebuilt: status.phase"),
        (
            {"phase": "Running", "conditions": [GOOD | {"status": "Perhaps"}, GOOD]},
            "Running",
            1,
            "status.conditions[0].status",
        ),
        ({"phase": "Running", "conditions": "none"}, "Running", 0, "status.conditions"),
        (
            {"phase": "Running", "learner": {"ready": -1}, "restarts": "many"},
            "Running",
            0,
            "status.learner.ready, status.restarts",
        ),
        ("text", "Pending", 0, "cannot be read"),
    ],
)
def test_what_can_be_read_of_a_status_counts(raw: Any, phase: str, conditions: int, said: str) -> None:
    status, sentence = read_status(raw)
    assert (status.phase, len(status.conditions)) == (phase, conditions)
    assert said in sentence
    assert bool(said) == bool(sentence)


def test_a_status_that_cannot_be_read_is_made_anew_and_told_once() -> None:
    world = make_world().up()
    world.job["status"]["learner"]["ready"] = "some"
    world.settle()
    messages = [message for reason, message in world.events if reason == "StatusUnreadable"]
    assert messages == ["parts of the status cannot be read and are rebuilt: status.learner.ready"]
    assert (world.status.phase, world.status.learner.ready, world.observe().unreadable) == ("Running", 1, "")


def test_a_job_that_is_over_is_not_run_again_since_something_in_its_status_is_odd() -> None:
    world = make_world().up()
    world.die(LEARNER, 64).settle()
    world.end_deleted().settle()
    world.job["status"]["restarts"] = "many"
    world.settle()
    assert (world.status.phase, world.pods) == ("Failed", {})


def test_pods_whose_labels_were_taken_away_are_still_members() -> None:
    world = make_world().up()
    for pod in world.pods.values():
        pod["metadata"]["labels"] = {}
    assert world.plan().empty


def test_pods_that_somebody_else_gave_to_the_job_are_left_alone() -> None:
    world = make_world().up()
    stranger = world.pods[LEARNER] | {
        "metadata": world.pods[LEARNER]["metadata"] | {"name": "demo-x", "uid": "x"}
    }
    observed = Observed.of(world.job, [*world.pods.values(), stranger], "ab")
    assert [pod.name for pod in observed.pods] == list(world.pods)


def failed_invalid(**run_policy: Any) -> World:
    world = make_world(environment={}, runPolicy=run_policy)
    made = plan_invalid(world.observe(), START)
    assert made.status is not None
    ttl = run_policy.get("ttlSecondsAfterFinished")
    assert made.requeue_after == (ttl if isinstance(ttl, int) else None)
    world.job["status"] = made.status.to_dict()
    return world


def test_an_invalid_job_is_deleted_when_its_time_is_over() -> None:
    world = failed_invalid(ttlSecondsAfterFinished=60)
    assert plan_invalid(world.observe(), START).requeue_after == 60
    late = plan_invalid(world.observe(), START + timedelta(seconds=60))
    assert late.delete == (Ref(KIND, "demo", "job-uid"),)


@pytest.mark.parametrize("policy", [{}, {"ttlSecondsAfterFinished": "soon"}])
def test_an_invalid_job_without_such_a_time_stays(policy: dict[str, Any]) -> None:
    world = failed_invalid(**policy)
    made = plan_invalid(world.observe(), START + timedelta(days=99))
    assert (made.empty, made.requeue_after) == (True, None)
