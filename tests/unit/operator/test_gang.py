"""Queues and gang schedulers: the fields that each finds on the pods, and the objects beside them."""

from __future__ import annotations

from typing import Any

import pytest
from operator_world import World, dedicated, make_world
from rltraining_api.names import ANNOTATION_TEMPLATE


def gang(samplers: int = 2, template: dict[str, Any] | None = None, **policy: Any) -> World:
    sampler = {"replicas": samplers} | ({"template": template} if template else {})
    world = make_world(sampler=sampler, runPolicy={"schedulingPolicy": policy}).settle()
    assert world.step().empty, "what the scheduler's API adds is left alone"
    return world


def annotations(pod: dict[str, Any]) -> dict[str, str]:
    """Returns the annotations of a pod, without the one about its template."""
    found = pod["metadata"].get("annotations", {})
    return {key: value for key, value in found.items() if key != ANNOTATION_TEMPLATE}


def group(world: World) -> dict[str, Any]:
    return world.others["PodGroup", "demo"]


def test_without_a_policy_there_is_nothing() -> None:
    world = make_world().settle()
    for pod in world.pods.values():
        assert annotations(pod) == {}
        assert "schedulerName" not in pod["spec"]
    assert ("PodGroup", "demo") not in world.others


def test_kueue_queues_each_pod_by_itself() -> None:
    world = gang(kueue={"queueName": "team-a"})
    for pod in world.pods.values():
        assert pod["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team-a"
    assert ("PodGroup", "demo") not in world.others


def test_volcano() -> None:
    world = gang(volcano={"queue": "gpu", "priorityClassName": "high"})
    assert group(world)["apiVersion"] == "scheduling.volcano.sh/v1beta1"
    assert group(world)["spec"] == {"minMember": 2, "queue": "gpu", "priorityClassName": "high"}
    assert group(world)["metadata"]["ownerReferences"][0]["uid"] == "job-uid"
    for pod in world.pods.values():
        assert annotations(pod) == {"scheduling.k8s.io/group-name": "demo"}
        assert pod["spec"]["schedulerName"] == "volcano"


def test_coscheduling() -> None:
    world = gang(coscheduling={"scheduleTimeoutSeconds": 30})
    assert group(world)["apiVersion"] == "scheduling.x-k8s.io/v1alpha1"
    assert group(world)["spec"]["minMember"] == 2
    assert group(world)["spec"]["scheduleTimeoutSeconds"] == 30
    for pod in world.pods.values():
        assert pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == "demo"
        assert "schedulerName" not in pod["spec"]


WHOLE = dedicated(3) | {"learner": {"replicas": 2}, "sampler": {"replicas": 4}}
SMALL = {"sampler": {"replicas": 2}}


@pytest.mark.parametrize(("key", "field"), [("volcano", "minAvailable"), ("coscheduling", "minMember")])
@pytest.mark.parametrize(
    ("spec", "asked", "together"),
    [(SMALL, None, 2), (SMALL, 20, 3), (WHOLE, None, 6), (WHOLE, 1, 1), (WHOLE, 9, 9), (WHOLE, 10, 9)],
)
def test_a_run_begins_with_all_learners_all_replay_pods_and_one_sampler(
    spec: dict[str, Any], asked: int | None, together: int, key: str, field: str
) -> None:
    policy = {"schedulingPolicy": {key: {field: asked} if asked else {}}}
    world = make_world(**spec, runPolicy=policy).settle()
    assert group(world)["spec"]["minMember"] == together


def test_a_job_that_is_made_smaller_does_not_wait_for_members_it_will_not_have() -> None:
    world = gang(4, volcano={"minAvailable": 5})
    world.spec(sampler={"replicas": 1}).settle()
    assert group(world)["spec"]["minMember"] == 2


def test_a_template_may_name_another_scheduler_but_not_another_group() -> None:
    metadata = {"labels": {"scheduling.x-k8s.io/pod-group": "mine"}, "annotations": {"a": "b"}}
    template = {"metadata": metadata, "spec": {"schedulerName": "second"}}
    pod = gang(template=template, coscheduling={}).pods["demo-sampler-0"]
    assert pod["spec"]["schedulerName"] == "second"
    assert pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == "demo"
    assert annotations(pod) == {"a": "b"}
    assert gang(template=template, volcano={}).pods["demo-sampler-0"]["spec"]["schedulerName"] == "second"
