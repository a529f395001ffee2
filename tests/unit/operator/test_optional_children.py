"""A job runs without the children that it does not need."""

from __future__ import annotations

import pytest
from operator_world import LEARNER, SAMPLER_0, make_world
from rltraining_operator.errors import RejectedError
from rltraining_operator.pods.children import REMEDIES
from test_engine import RecordingCluster, one_pass


def test_a_job_runs_without_an_optional_child_and_reports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REMEDIES, "NetworkPolicy", "install a plug-in")
    cluster = RecordingCluster(make_world())
    no_policies = RejectedError("this cluster has no NetworkPolicy of v1")
    cluster.refuse = lambda call: no_policies if call == "apply NetworkPolicy" else None
    one_pass(cluster)
    assert cluster.world.pods.keys() == {LEARNER, SAMPLER_0, "demo-sampler-1"}
    assert cluster.world.condition("ReplicaFailure") == ("True", "OptionalObjectRejected")
    sentence = f"NetworkPolicy demo: {no_policies}. The job runs without it: install a plug-in"
    told = {event.message for event in cluster.events if event.reason == "OptionalObjectRejected"}
    assert told == {sentence}
    cluster.world.run()
    one_pass(cluster)
    assert (cluster.world.status.phase, cluster.world.status.message) == ("Running", "")
    cluster.refuse = lambda call: None
    one_pass(cluster)
    one_pass(cluster)
    assert cluster.world.condition("ReplicaFailure") == ("False", "Accepted")


def test_what_else_is_rejected_precedes_an_optional_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REMEDIES, "NetworkPolicy", "install a plug-in")
    cluster = RecordingCluster(make_world())
    errors = {
        "apply NetworkPolicy": RejectedError("no policies"),
        "apply Service": RejectedError("no services"),
    }
    cluster.refuse = errors.get
    one_pass(cluster)
    assert cluster.world.pods == {}
    assert cluster.world.status.message == "Service demo-rlt: no services"
