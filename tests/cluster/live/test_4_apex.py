"""Ape-X, replay pods and several learners in real pods, from the examples."""

from __future__ import annotations

import pytest
from jobs import Json, Team, example

pytestmark = pytest.mark.timeout(300)


@pytest.mark.at_once
def test_dqn_learns_from_the_shards_of_its_samplers(team: Team) -> None:
    def learns_from_both(status: Json) -> bool:
        memory = status.get("replay") or {}
        return memory.get("shards") == 2 and memory["inserted"] >= 15_000 and memory["prioritiesApplied"] > 0

    with team.job("dqn", example("cartpole-dqn-apex", stop={"environmentSteps": 10**9})) as job:
        job.until(learns_from_both, "learning from both")
        job.patch({"stop": {"environmentSteps": job.steps}})
        status = job.until_phase("Succeeded")
        memory = status["replay"]
        assert memory["shards"] == 2
        assert memory["inserted"] == memory["size"] + memory["evicted"] + memory["lost"] >= 15_000
        assert memory["prioritiesApplied"] > 0
        assert status["failures"] == status["restarts"] == 0


@pytest.mark.at_once
def test_sac_learns_while_samplers_with_parts_of_its_memory_join_crash_and_leave(team: Team) -> None:
    team.cluster.need_local("it kills a process in a container from outside")
    spec = example("pendulum-sac", stop={"environmentSteps": 10**9})
    spec["algorithm"]["sac"]["replay"] = {"minimum": 500}
    with team.job("elastic", spec) as job:
        job.until(lambda status: status.get("progress", {}).get("updates"), "learning")
        updates = job.status["progress"]["updates"]
        for samplers in (4, 2):
            team.kubectl("scale", "rlj", job.name, f"--replicas={samplers}")
            job.until_ready("1/1", f"{samplers}/{samplers}")
            job.until(lambda status, n=samplers: status["replay"]["shards"] == n, f"{samplers} shards")
            job.until_steps()
            seen, updates = updates, job.status["progress"]["updates"]
            assert updates > seen, f"no updates with {samplers} samplers"
        lost = job.status["replay"]["lost"]
        assert lost > 0, "the transitions of the samplers that left"
        job.kill("sampler-1")
        job.until(lambda status: status["sampler"]["restarts"] == 1, "counted for a sampler")
        job.until(lambda status: status["replay"]["lost"] > lost, "counted for its shard")
        job.until_ready("1/1", "2/2")
        job.until_steps()
        job.patch({"stop": {"environmentSteps": job.steps}})
        status = job.until_phase("Succeeded")
        memory = status["replay"]
        assert memory["inserted"] == memory["size"] + memory["evicted"] + memory["lost"]
        assert memory["replayRatio"] <= 256 * 1.01, "one update of 256 transitions for each environment step"
        assert (status["failures"], status["learner"]["restarts"]) == (0, 0)


@pytest.mark.at_once
def test_ddpg_learns_from_a_replay_pod(team: Team) -> None:
    spec = example("pendulum-ddpg-apex", stop={"environmentSteps": 8_000})
    spec["algorithm"]["ddpgApex"]["replay"]["placement"] = "Dedicated"
    with team.job("ddpg", spec) as job:
        status = job.until_phase("Succeeded")
        assert status["replay"]["shards"] == 1
        assert status["replay"]["prioritiesApplied"] > 0
        assert status["failures"] == status["restarts"] == 0
        assert status["replayPods"]["restarts"] == 0, "the pod has run, and ended with the job"


@pytest.mark.at_once("pair")
def test_a_killed_learner_of_two_comes_back(team: Team) -> None:
    team.cluster.need_local("it kills a process in a container from outside")
    spec = example("cartpole-two-learners", stop={"seconds": 3600, "environmentSteps": 10**9})
    with team.job("pair", spec | team.gentle("pair")) as job:
        job.until_ready("2/2", "2/2")
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
