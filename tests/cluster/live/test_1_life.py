"""A job from `kubectl apply` to its policy."""

from __future__ import annotations

import pytest
from jobs import CLAIM, Team, every, example

pytestmark = [pytest.mark.timeout(300), pytest.mark.at_once]


def test_a_job_runs_through_its_phases_and_leaves_its_policy_in_its_volume(team: Team) -> None:
    spec = example("cartpole-impala", sampler={"replicas": 1}, stop={"environmentSteps": 10**9})
    checkpoint = {"volume": {"claimTemplate": CLAIM}, "everySeconds": 1}
    with team.job("life", spec | team.gentle("life") | {"checkpoint": checkpoint}) as job:
        phases: list[str] = []
        goal = 0
        for _ in every(0.05):
            status = job.status
            if (phase := status.get("phase", "")) and phase not in phases:
                phases.append(phase)
            if phase in ("Succeeded", "Failed"):
                break
            if not goal and len(status.get("curve", ())) > 2:
                goal = status["progress"]["environmentSteps"] + 100
                job.patch({"stop": {"environmentSteps": goal}})
        assert phases == ["Pending", "Starting", "Running", "Succeeded"], status
        assert status["progress"]["environmentSteps"] >= goal > 0
        curve = [point["environmentSteps"] for point in status["curve"]]
        assert curve == sorted(curve)
        assert curve[-1] == status["progress"]["environmentSteps"], (
            "the final report continues the earlier ones"
        )
        assert status["policyUri"].startswith("file:///output/")
        assert status["failures"] == status["restarts"] == 0
        for reason in ("PodsCreated", "Running", "Completed"):
            job.until_event(reason)
        if team.cluster.parts:  # its volumes are on this machine
            policy = job.volume() / status["policyUri"].removeprefix("file:///output/")
            assert (policy / "weights.pt").stat().st_size > 0
    job.until_gone()
