"""Ape-X, replay pods and several learners, in real pods: the examples, at the same time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from jobs import GENTLE, Job, Json, Team, example

pytestmark = pytest.mark.timeout(300)

BEGIN_SECONDS = 180
"""Ten pods import torch at once."""


@pytest.fixture(scope="module")
def jobs(team: Team) -> Iterator[dict[str, Job]]:
    """All three run while each is looked at."""
    dedicated = example("pendulum-ddpg-apex", stop={"environmentSteps": 8_000})
    dedicated["algorithm"]["ddpgApex"]["replay"]["placement"] = "Dedicated"
    specs = {
        "dqn": example("cartpole-dqn-apex", stop={"environmentSteps": 10**9}),
        "ddpg": dedicated,
        "pair": example(
            "cartpole-two-learners",
            stop={"seconds": 3600, "environmentSteps": 10**9},
            code=team.code("gentle", gentle=GENTLE),
            environment={"id": "gentle:Gentle-v0", "numEnvs": 4},
        ),
    }
    jobs = {name: team.submit(name, spec) for name, spec in specs.items()}
    yield jobs
    for job in jobs.values():
        job.delete()


def test_dqn_learns_from_the_shards_of_its_samplers(jobs: dict[str, Job]) -> None:
    job = jobs["dqn"]

    def learns_from_both(status: Json) -> bool:
        memory = status.get("replay") or {}
        return memory.get("shards") == 2 and memory["inserted"] >= 15_000 and memory["prioritiesApplied"] > 0

    job.until(learns_from_both, "learning from both", BEGIN_SECONDS)
    job.patch({"stop": {"environmentSteps": job.steps}})
    status = job.until_phase("Succeeded")
    memory = status["replay"]
    assert memory["shards"] == 2
    assert memory["inserted"] == memory["size"] + memory["evicted"] + memory["lost"] >= 15_000
    assert memory["prioritiesApplied"] > 0
    assert status["failures"] == status["restarts"] == 0


def test_dpg_learns_from_a_replay_pod(jobs: dict[str, Job]) -> None:
    job = jobs["ddpg"]
    status = job.until_phase("Succeeded", BEGIN_SECONDS)
    assert status["replay"]["shards"] == 1
    assert status["replay"]["prioritiesApplied"] > 0
    assert status["failures"] == status["restarts"] == 0
    assert status["replayPods"]["restarts"] == 0, "it was there, and has gone with the job"


def test_a_learner_of_two_is_killed_and_comes_back(jobs: dict[str, Job]) -> None:
    job = jobs["pair"]
    job.until_ready("2/2", "2/2", seconds=BEGIN_SECONDS)
    job.until_steps()
    updates = job.status["progress"]["updates"]
    for victim in ("learner-1", "learner-0"):
        restarts = job.status["learner"]["restarts"]
        job.kill(victim)
        job.until(lambda status, seen=restarts: status["learner"]["restarts"] > seen, f"{victim} counted")
        job.until_ready("2/2", "2/2")
        job.until_steps()
        after = job.status
        assert after["progress"]["updates"] > updates, "from the other learner, not from nothing"
        updates = after["progress"]["updates"]
        assert (after["failures"], after["sampler"]["restarts"]) == (0, 0)
    job.patch({"stop": {"environmentSteps": max(1, job.steps)}})
    assert job.until_phase("Succeeded")["failures"] == 0
