"""Samplers get a changed `sampler.template` one after the other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from operator_world import DEFAULTS, LEARNER, SAMPLER_0, SAMPLER_1, World, make_world, report, termination
from rltraining_api.names import ANNOTATION_TEMPLATE
from rltraining_api.roles import PodTemplate
from rltraining_operator.observe.admission import AdmissionFailure
from rltraining_operator.pods.rollout import replaced_at_once, template_hash

QUOTA = AdmissionFailure("QuotaExceeded", "exceeded quota", LEARNER)


def template(value: str, **trainer: Any) -> dict[str, Any]:
    """Returns a template with a variable for the environments."""
    variables = [{"name": "LEVEL", "value": value}]
    return {"spec": {"containers": [{"name": "trainer", "env": variables} | trainer]}}


def change(world: World, value: str, samplers: int = 2, **trainer: Any) -> World:
    return world.spec(sampler={"replicas": samplers, "template": template(value, **trainer)})


def going(world: World) -> list[str]:
    return [name for name, pod in world.pods.items() if "deletionTimestamp" in pod["metadata"]]


def level(world: World, name: str) -> str | None:
    variables = world.pods[name]["spec"]["containers"][0]["env"]
    return next((each["value"] for each in variables if each["name"] == "LEVEL"), None)


def next_pod(world: World) -> list[str]:
    """Runs the created pods. Returns the pods that are then deleted."""
    world.end_deleted().settle()
    world.run().settle()
    return going(world)


def rolled_out(world: World) -> list[list[str]]:
    """Returns the pods that are deleted together, in the order in which they are."""
    world.settle()
    found = [going(world)]
    while found[-1]:
        found.append(next_pod(world))
    return found[:-1]


def told(world: World) -> list[tuple[str, str]]:
    return [event for event in world.events if event[0] in ("RollingUpdate", "AllSamplersUpdated")]


def nothing_is_counted(world: World) -> bool:
    restarts = world.status.restarts, world.status.sampler.restarts
    return (world.counts, restarts, world.status.ledger) == ((0, 0), (0, 0), ())


def test_samplers_get_a_changed_template_one_after_the_other() -> None:
    world = make_world(sampler={"replicas": 3}).up()
    assert (world.status.sampler.updated, world.condition("SamplersUpdated")) == (3, None)
    uids = {name: pod["metadata"]["uid"] for name, pod in world.pods.items()}

    change(world, "2", samplers=3).settle()
    assert going(world) == ["demo-sampler-2"]
    assert (world.status.sampler.updated, world.status.phase) == (0, "Running")
    assert world.condition("SamplersUpdated") == ("False", "RollingUpdate")
    world.end_deleted().settle()
    assert (going(world), level(world, "demo-sampler-2")) == ([], "2"), "it is not ready yet"
    assert world.status.sampler.updated == 1

    world.run().settle()
    assert going(world) == [SAMPLER_1]
    assert next_pod(world) == [SAMPLER_0]
    assert next_pod(world) == []
    assert (world.status.sampler.updated, world.status.sampler.summary) == (3, "3/3")
    assert world.condition("SamplersUpdated") == ("True", "AllSamplersUpdated")
    assert [level(world, f"demo-sampler-{index}") for index in range(3)] == ["2"] * 3
    assert world.pods[LEARNER]["metadata"]["uid"] == uids[LEARNER]
    assert nothing_is_counted(world)
    assert told(world) == [
        (
            "RollingUpdate",
            "0 of 3 samplers have the present sampler.template; replacing at most 1 at a time",
        ),
        ("AllSamplersUpdated", "all samplers have the present sampler.template"),
    ]
    assert world.step().empty


def test_the_only_sampler_is_replaced_too() -> None:
    world = make_world(sampler={"replicas": 1}).up()
    change(world, "2", samplers=1)
    assert rolled_out(world) == [[SAMPLER_0]]
    assert world.status.phase == "Running"
    assert len(told(world)) == 2
    assert nothing_is_counted(world)


def test_a_template_that_cannot_start_stops_at_the_first_sampler_until_it_is_corrected() -> None:
    world = make_world().up()
    change(world, "2", image="typo").settle()
    world.end_deleted().settle()
    world.wait_for(SAMPLER_1, "ErrImagePull", "typo: not found").after(1000).settle()
    assert going(world) == []
    assert (world.status.phase, world.status.sampler.summary) == ("Running", "1/2")
    assert (world.condition("Ready") or ("", ""))[1] == "ImagePullFailed"
    assert "typo: not found" in world.status.message
    assert world.status.sampler.updated == 1

    change(world, "3").settle()
    assert going(world) == [SAMPLER_1], "the other one still trains"
    assert next_pod(world) == [SAMPLER_0]
    assert next_pod(world) == []
    assert [level(world, name) for name in (SAMPLER_0, SAMPLER_1)] == ["3", "3"]
    assert nothing_is_counted(world)
    assert len(told(world)) == 2


def test_a_job_of_which_no_sampler_can_start_is_corrected_by_another_template() -> None:
    world = make_world(sampler={"replicas": 2, "template": template("1", image="typo")}).settle()
    world.run(LEARNER)
    for name in (SAMPLER_0, SAMPLER_1):
        world.wait_for(name, "ImagePullBackOff")
    world.settle()
    change(world, "1", image="right").settle()
    assert going(world) == [SAMPLER_1]
    world.end_deleted().settle()
    assert going(world) == []
    world.run(SAMPLER_1).settle()
    assert going(world) == [SAMPLER_0]
    world.end_deleted().settle()
    world.run(SAMPLER_0).settle()
    assert world.condition("SamplersUpdated") == ("True", "AllSamplersUpdated")
    assert nothing_is_counted(world)


def test_no_sampler_is_replaced_while_another_one_is_not_ready() -> None:
    world = make_world(sampler={"replicas": 3}).up()
    change(world, "2", samplers=4).settle()
    assert going(world) == [], "the fourth one does not run yet"
    world.run().settle()
    assert going(world) == ["demo-sampler-2"], "the fourth one was created with the new template"
    assert next_pod(world) == [SAMPLER_1]


def test_no_sampler_is_replaced_while_the_learner_has_no_place() -> None:
    """It might have to give way, and then it would not be created again."""
    world = make_world(sampler={"replicas": 3}).up()
    world.vanish(LEARNER).run(SAMPLER_0, ready=False)
    change(world, "2", samplers=3)
    world.rejects = lambda child: QUOTA if child["kind"] == "Pod" else None
    world.step()
    assert going(world) == ["demo-sampler-2"], "it gives way"
    world.rejects = lambda child: None
    world.end_deleted().settle()
    world.cannot_schedule(LEARNER, "no node has room")
    world.run(SAMPLER_0, SAMPLER_1, "demo-sampler-2").settle()
    assert going(world) == []
    world.run(LEARNER).settle()
    assert going(world) == [SAMPLER_1]
    assert world.counts == (0, 1), "the learner, which vanished"


def test_samplers_are_replaced_while_a_quota_keeps_others_away() -> None:
    world = make_world(sampler={"replicas": 6})
    world.rejects = lambda child: QUOTA if child["kind"] == "Pod" and len(world.pods) > 3 else None
    world.settle()
    world.run().settle()
    assert (world.status.sampler.summary, (world.condition("Ready") or ("", ""))[1]) == (
        "3/6",
        "QuotaExceeded",
    )
    change(world, "2", samplers=6)
    assert rolled_out(world) == [["demo-sampler-2"], [SAMPLER_1], [SAMPLER_0]]
    assert [level(world, name) for name in (SAMPLER_0, SAMPLER_1, "demo-sampler-2")] == ["2"] * 3
    assert nothing_is_counted(world)

    world.rejects = lambda child: None
    world.after(60).settle()
    world.run().settle()
    assert world.condition("SamplersUpdated") == ("True", "AllSamplersUpdated")


def test_a_sampler_that_is_not_ready_is_replaced_first() -> None:
    world = make_world(sampler={"replicas": 3}).up()
    world.run(SAMPLER_0, ready=False).settle()
    change(world, "2", samplers=3)
    assert rolled_out(world) == [[SAMPLER_0], ["demo-sampler-2"], [SAMPLER_1]]


def test_a_tenth_of_many_samplers_is_replaced_together() -> None:
    assert [replaced_at_once(count) for count in (1, 9, 19, 20, 10_000)] == [1, 1, 1, 2, 1000]
    world = make_world(sampler={"replicas": 25}).up()
    change(world, "2", samplers=25)
    together = rolled_out(world)
    assert [len(names) for names in together] == [2] * 12 + [1]
    assert sorted(together[0]) == ["demo-sampler-23", "demo-sampler-24"]
    assert world.status.sampler.updated == 25
    assert nothing_is_counted(world)


def test_a_template_that_changes_meanwhile_replaces_the_new_samplers_too() -> None:
    world = make_world().up()
    change(world, "2").settle()
    assert next_pod(world) == [SAMPLER_0]
    change(world, "3").settle()
    assert next_pod(world) == [SAMPLER_1], "the first one is created with the newest template"
    assert next_pod(world) == []
    assert [level(world, name) for name in (SAMPLER_0, SAMPLER_1)] == ["3", "3"]
    assert [reason for reason, _ in told(world)] == ["RollingUpdate", "AllSamplersUpdated"]


def test_a_second_change_is_told_again() -> None:
    world = make_world().up()
    for value in ("2", "3"):
        change(world, value)
        assert rolled_out(world) == [[SAMPLER_1], [SAMPLER_0]]
    assert [reason for reason, _ in told(world)] == ["RollingUpdate", "AllSamplersUpdated"] * 2


def test_another_operator_restarts_nobody() -> None:
    """Its defaults differ, and pods of an operator without this feature have no annotation."""
    world = make_world(sampler={"replicas": 2, "template": template("1")}).up()
    world.settings = replace(DEFAULTS, image="trainer:2", priority_class="low")
    assert world.step().empty

    for name in (SAMPLER_0, SAMPLER_1):
        del world.pods[name]["metadata"]["annotations"][ANNOTATION_TEMPLATE]
    for key in ("template", "updated"):
        del world.job["status"]["sampler"][key]
    world.settle()
    assert (going(world), world.status.sampler.updated, told(world)) == ([], 2, [])


@pytest.mark.parametrize("undo", [False, True])
def test_pods_of_an_older_operator_have_the_template_from_before_the_first_change(undo: bool) -> None:
    world = make_world(sampler={"replicas": 2, "template": template("1")}).up()
    for name in (SAMPLER_0, SAMPLER_1):
        del world.pods[name]["metadata"]["annotations"][ANNOTATION_TEMPLATE]
    world.settle()
    change(world, "2").settle()
    assert next_pod(world) == [SAMPLER_0]
    if undo:
        change(world, "1").settle()
        world.end_deleted().settle()
        world.run().settle()
        assert going(world) == [SAMPLER_1], "the other one had this template from the start"
    else:
        assert next_pod(world) == []
    assert nothing_is_counted(world)


def test_a_suspended_job_resumes_with_the_new_template() -> None:
    world = make_world().up()
    change(world, "2", samplers=2).spec(runPolicy={"suspend": True}).settle()
    world.end_deleted().settle()
    assert (world.pods, told(world)) == ({}, [])
    world.spec(runPolicy={"suspend": False}).settle()
    world.run().settle()
    assert [level(world, name) for name in (SAMPLER_0, SAMPLER_1)] == ["2", "2"]
    assert (going(world), told(world)) == ([], [])


@pytest.mark.parametrize("phase", ["Succeeded", "Running"], ids=["alone", "with a sidecar"])
def test_samplers_that_are_done_are_not_replaced(phase: str) -> None:
    world = make_world().up()
    for name in (SAMPLER_0, SAMPLER_1):
        world.die(name, 0, "Completed", termination("Completed", "done"))
        world.pods[name]["status"]["phase"] = phase
    world.say(report(1000, stopReason="stop.environmentSteps is reached")).settle()
    change(world, "2").settle()
    assert going(world) == [], "the learner writes its results, and needs no new sampler"


def test_a_sampler_that_crashes_with_the_new_template_counts_as_a_failure() -> None:
    world = make_world().up()
    change(world, "2").settle()
    world.end_deleted().settle()
    world.run(SAMPLER_1, ready=False).crash(SAMPLER_1, 1).run(SAMPLER_1, ready=False).settle()
    assert (world.counts, going(world)) == ((1, 0), [])


def test_only_samplers_have_the_hash_of_their_template() -> None:
    world = make_world().up()
    hashes = {
        name: pod["metadata"].get("annotations", {}).get(ANNOTATION_TEMPLATE)
        for name, pod in world.pods.items()
    }
    assert hashes == {LEARNER: None} | dict.fromkeys((SAMPLER_0, SAMPLER_1), template_hash(PodTemplate()))


def test_the_hash_is_of_the_content_and_the_same_in_every_version() -> None:
    """Another value for the same template would replace all samplers when the operator is upgraded."""
    spec = {"nodeSelector": {"a": "1", "b": "2"}}
    ordered = PodTemplate(spec=spec, metadata={"labels": {"c": "3"}})
    other = PodTemplate(metadata={"labels": {"c": "3"}}, spec={"nodeSelector": {"b": "2", "a": "1"}})
    assert template_hash(ordered) == template_hash(other)
    assert template_hash(PodTemplate()) == template_hash(PodTemplate(metadata={}, spec={})) == "1d4c63a211"
    assert template_hash(ordered) == "d59c9e3b6b"
