"""A changed `sampler.template` reaches the samplers of a running job."""

from __future__ import annotations

import pytest
from jobs import Json, Team, example

pytestmark = [pytest.mark.timeout(600), pytest.mark.at_once]
LEVEL = {"name": "LEVEL", "value": "2"}
SAMPLERS = ("rollout-sampler-0", "rollout-sampler-1")


def test_samplers_get_a_changed_template_one_after_the_other_while_the_job_trains(team: Team) -> None:
    spec = example("cartpole-impala", sampler={"replicas": 2}, stop={"seconds": 3600})
    spec["algorithm"]["impala"]["learningRateSchedule"] = "Constant"
    with team.job("rollout", spec | team.gentle("rollout")) as job:
        job.until_ready("1/1", "2/2")
        job.until_steps()
        uids = job.uids()
        job.patch({"sampler": {"template": {"spec": {"containers": [{"name": "trainer", "env": [LEVEL]}]}}}})
        job.until(lambda _: job.condition("SamplersUpdated").get("status") == "False", "rolled out")
        job.until(lambda _: job.condition("SamplersUpdated").get("status") == "True", "rolled out to the end")
        status = job.until_ready("1/1", "2/2")
        job.until_steps()
        assert status["sampler"]["updated"] == 2
        pods = job.pods()
        assert all(LEVEL in _variables(pods[name]) for name in SAMPLERS)
        assert [name for name in uids if uids[name] == job.uids()[name]] == ["rollout-learner-0"]
        created = [pods[name]["metadata"]["creationTimestamp"] for name in SAMPLERS]
        assert created[0] > created[1], "the second sampler was replaced first, and the first waited for it"
        counted = (status["restarts"], status["failures"], status["disruptions"])
        assert counted == (0, 0, 0), status
        job.until_event("RollingUpdate", "of 2 samplers have the present sampler.template")
        job.until_event("AllSamplersUpdated")


def _variables(pod: Json) -> list[Json]:
    return list(pod["spec"]["containers"][0]["env"])
