"""The number of samplers follows the speed of the learner, and `kubectl scale` takes precedence."""

from __future__ import annotations

import json

import pytest
from jobs import Job, Json, Team
from rltraining_api.names import API_VERSION, KIND

from tests.sampler_demand import MODULE, SLOW, demanding

pytestmark = [pytest.mark.timeout(600), pytest.mark.at_once("follow")]


def test_a_job_gets_the_samplers_that_its_learner_needs(team: Team) -> None:
    spec = demanding("demand") | {"code": team.code("follow-code", demand=MODULE)}
    metadata = {"name": "follow", "namespace": team.namespace}
    manifest = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}
    # Not by `apply`, which drops a null.
    team.cluster.kubectl("create", "-f", "-", stdin=json.dumps(manifest))
    job = Job(team, "follow")
    try:
        # Wait for each stage separately: beside the other tests, pods may take two minutes to start.
        job.until_ready("1/1", "2/2")
        job.until(lambda status: status["autoscale"]["target"] == 3, "with a target of three samplers")
        job.until_ready("1/1", "3/3")
        job.until(lambda status: _settled(status, 3), "with three samplers, measured")
        job.until_event("SamplersScaled", "from 2 to 3 samplers: the learner waited for data")
        team.kubectl("exec", "follow-learner-0", "--", "touch", f"/output/{SLOW}")
        job.until(lambda status: status["autoscale"]["target"] == 1, "with a target of one sampler")
        job.until_ready("1/1", "1/1")
        job.until(lambda status: _settled(status, 1), "with one sampler, measured")
        job.until_event("SamplersScaled", "from 2 to 1 samplers: the learner waited for data only")
        team.kubectl("scale", "rlj/follow", "--replicas=3")
        status = job.until_ready("1/1", "3/3")
        assert (status["autoscale"]["target"], status["autoscale"]["state"]) == (3, "Overridden")
        assert (status["failures"], status["restarts"]) == (0, 0)
    finally:
        job.delete()


def _settled(status: Json, samplers: int) -> bool:
    """Whether this number of samplers was measured, and kept."""
    found = status.get("autoscale", {})
    return found.get("target") == samplers and "stepsPerSecond" in found.get("search", {})
