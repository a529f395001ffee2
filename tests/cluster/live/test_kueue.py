"""A queue of Kueue with room for three of a job's seven pods: `make partners`, which is not part of `make live`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import kueue
import pytest
from jobs import Json, Team, example

pytestmark = pytest.mark.timeout(300)
SAMPLERS = 6
FULL = ("1/1", "2/6")
"""Learners and samplers that are ready when the queue is full."""


@pytest.fixture(scope="module", autouse=True)
def _queue(team: Team) -> Iterator[None]:
    team.cluster.need_local("it adds Kueue's image to the node")
    with kueue.installed(team.cluster), kueue.queue(team, pods=3):
        yield


def spec(team: Team, name: str, **changes: Json) -> Json:
    changes = {
        "runPolicy": {"schedulingPolicy": {"kueue": {"queueName": kueue.QUEUE}}},
        "sampler": {"replicas": SAMPLERS},
        "stop": {"environmentSteps": 10**9},
        **changes,
    }
    return example("cartpole-impala", **changes) | team.gentle(name)


@pytest.mark.parametrize("number", range(3))
def test_the_learner_is_admitted_before_the_samplers(team: Team, number: int) -> None:
    name = f"admitted-{number}"
    with team.job(name, spec(team, name)) as job:
        job.until_ready(*FULL)
        gated = [pod for pod, found in job.pods().items() if found["spec"].get("schedulingGates")]
        assert len(gated) == 4
        job.until_steps()


def test_samplers_are_preempted_one_by_one_and_a_learner_with_a_priority_is_not(team: Team) -> None:
    learner = {"template": {"metadata": {"labels": {kueue.LABEL_PRIORITY: "high"}}}}
    with team.job("preempted", spec(team, "preempted", learner=learner)) as job:
        job.until_ready(*FULL)
        uid = job.uids()["preempted-learner-0"]
        with kueue.other_pod(team, "first", "medium"):
            job.until_ready("1/1", "1/6")
            job.until_steps()
            with kueue.other_pod(team, "second", "medium"):
                job.until_ready("1/1", "0/6")
        job.until_ready(*FULL)
        job.until_steps()
        assert job.uids()["preempted-learner-0"] == uid
        assert job.status["failures"] == 0, "a preemption is a disruption"


def test_a_learner_gets_its_room_back_from_the_samplers(team: Team) -> None:
    with team.job("lost", spec(team, "lost")) as job:
        job.until_ready(*FULL)
        job.until_steps()
        # The pods of the samplers have waited longer than the new pod of the learner.
        team.kubectl("delete", "pod", "lost-learner-0", "--grace-period=1")
        job.until(lambda status: status["learner"]["restarts"] == 1, "counted for a learner")
        job.until_ready(*FULL)
        job.until_steps()
        # Others take all of the room, and give it back.
        with ExitStack() as others:
            for number in range(3):
                others.enter_context(kueue.other_pod(team, f"other-{number}", "high"))
            job.until_ready("0/1", "0/6")
        job.until_ready(*FULL)
        job.until_steps()
        assert job.status["failures"] == 0
