"""A job from `kubectl apply` to its policy."""

from __future__ import annotations

import json

import pytest
from jobs import CLAIM, Team, every, example

pytestmark = pytest.mark.timeout(300)


def test_the_example_runs_and_leaves_its_policy_in_its_volume(team: Team) -> None:
    spec = example("cartpole-impala", sampler={"replicas": 2})
    spec["algorithm"]["impala"]["learningRate"] = 0.001
    spec["stop"] = {"environmentSteps": 3_000_000}
    job = team.submit(
        "cartpole", spec | {"checkpoint": {"volume": {"claimTemplate": CLAIM}, "everySeconds": 5}}
    )
    phases: list[str] = []
    for _ in every(0.1, 180):
        phase = job.status.get("phase", "")
        if phase and phase not in phases:
            phases.append(phase)
        if phase in ("Succeeded", "Failed"):
            break
    assert phases == ["Pending", "Starting", "Running", "Succeeded"], job.status
    status = job.status
    assert status["progress"]["environmentSteps"] >= 3_000_000
    curve = [point["environmentSteps"] for point in status["curve"]]
    assert len(curve) > 2
    assert curve == sorted(curve)
    assert curve[-1] == status["progress"]["environmentSteps"], "last words continue what was said before"
    assert status["policyUri"].startswith("file:///output/")
    assert status["failures"] == status["restarts"] == 0
    volume = json.loads(team.kubectl("get", "pvc", "cartpole-checkpoints", "-o", "json"))["spec"][
        "volumeName"
    ]
    spec = json.loads(team.kubectl("get", "pv", volume, "-o", "json"))["spec"]
    path = (spec.get("local") or spec["hostPath"])["path"]
    team.cluster.run("test", "-s", f"{path}/{status['policyUri'].removeprefix('file:///output/')}/weights.pt")
    reasons = [reason for reason, _ in job.events()]
    assert {"PodsCreated", "Running", "Completed"} <= set(reasons), reasons
    job.delete()
    for _ in every(0.5, 60):
        if not job.left():
            break
    assert job.left() == []
