"""Jobs with `sampler.autoscale`: pods, status and events follow the learner's reports."""

from __future__ import annotations

import json
from typing import Any

import pytest
from operator_world import LEARNER, SAMPLER_0, World, make_world, report, termination

SECONDS = 30
"""Length of a window of the default settings."""


def following(replicas: int = 2, **autoscale: int) -> World:
    return make_world(sampler={"replicas": replicas, "autoscale": {"min": 1, "max": 8} | autoscale})


def learn(world: World, wait: float, seconds: int = SECONDS + 5, **more: Any) -> World:
    """Simulates a learner that reports every five seconds. Created pods run, and deleted pods end."""
    for _ in range(seconds // 5):
        steps = world.status.progress.environment_steps + 100
        progress = {"environmentSteps": steps, "updates": steps, "learnerWaitPercent": wait}
        world.after(5).say(report(progress=progress | {"stepsPerSecond": 20.0}, **more)).settle()
        world.end_deleted().run().settle()
    return world


def samplers(world: World) -> list[str]:
    return [name.removeprefix("demo-") for name in sorted(world.pods) if "sampler" in name]


def number(world: World) -> tuple[int, str]:
    """Returns the number of samplers in the status, and whether the operator follows the learner."""
    assert world.status.autoscale is not None
    return world.status.autoscale.target, world.status.autoscale.state


def events(world: World) -> list[str]:
    return [message for reason, message in world.events if reason == "SamplersScaled"]


def test_the_job_gets_more_samplers_while_its_learner_waits_for_data() -> None:
    world = learn(following().up(), 60.0)
    assert samplers(world) == ["sampler-0", "sampler-1", "sampler-2", "sampler-3"]
    assert (world.status.sampler.summary, number(world)) == ("4/4", (4, "Active"))
    assert events(world) == ["from 2 to 4 samplers: the learner waited for data 60% of the time with 2"]
    assert world.condition("Ready") == ("True", "AllMembersReady")
    stored = json.loads(world.others["ConfigMap", "demo-config"]["data"]["job.json"])
    assert stored["spec"]["sampler"]["replicas"] == 4, "the trainer receives the number of samplers"
    assert world.job["spec"]["sampler"]["replicas"] == 2, "the user's spec stays as it is"
    assert world.counts == (0, 0)


def test_the_number_follows_the_learner_though_the_clock_was_set_back() -> None:
    world = learn(following().up(), 10.0).after(-3600)
    assert number(learn(world, 60.0)) == (4, "Active")


def test_a_learner_that_waits_without_updates_gets_no_more_samplers() -> None:
    """This happens when a replay memory is refilled after a restart."""
    world = learn(following().up(), 10.0)
    now = world.status.progress
    progress = {"environmentSteps": now.environment_steps, "updates": now.updates, "stepsPerSecond": 20.0}
    progress["learnerWaitPercent"] = 100.0
    for _ in range(2 * SECONDS // 5):
        progress["environmentSteps"] += 100
        world.after(5).say(report(progress=progress)).settle()
    assert number(world) == (2, "Active")


def test_the_job_gets_fewer_samplers_when_its_learner_hardly_waits() -> None:
    world = learn(following(4).up(), 0.0, 2 * SECONDS + 10)
    assert samplers(world) == ["sampler-0", "sampler-1"]
    assert world.status.sampler.summary == "2/2"
    assert [event.partition(":")[0] for event in events(world)] == [
        "from 4 to 3 samplers",
        "from 3 to 2 samplers",
    ]
    assert world.counts == (0, 0), "samplers that are not needed are not lost"


@pytest.mark.parametrize(("replicas", "bounds", "found"), [(1, {"min": 3}, 3), (9, {"max": 4}, 4)])
def test_a_job_starts_with_its_replicas_within_the_bounds(
    replicas: int, bounds: dict[str, int], found: int
) -> None:
    world = following(replicas, **bounds).up()
    assert (len(samplers(world)), world.status.sampler.summary) == (found, f"{found}/{found}")
    assert not events(world)


def test_a_window_without_a_report_changes_nothing() -> None:
    """The operator has restarted, or the learner cannot be reached."""
    world = learn(following().up(), 60.0, SECONDS - 5)
    world.after(1000).settle()
    assert number(world) == (2, "Active")
    learn(world, 60.0, 5)
    assert number(world) == (4, "Active")


def test_kubectl_scale_overrides_the_number_at_once_until_autoscale_changes() -> None:
    world = learn(following().up(), 60.0)
    world.spec(sampler=world.job["spec"]["sampler"] | {"replicas": 12}).settle()
    assert (len(samplers(world)), number(world)) == (12, (12, "Overridden"))
    assert events(world)[1:] == [
        "from 4 to 12 samplers: spec.sampler.replicas was changed, which turns sampler.autoscale off until it is "
        "changed, or removed and set again"
    ]
    learn(world, 0.0, 10 * SECONDS)
    assert number(world) == (12, "Overridden"), "an HPA is left alone"
    world.spec(sampler={"replicas": 12, "autoscale": {"min": 2, "max": 6}}).settle()
    assert (len(samplers(world.end_deleted())), number(world)) == (6, (6, "Active"))
    world.spec(sampler={"replicas": 3}).settle()
    assert len(samplers(world.end_deleted())) == 3
    assert world.status.autoscale is None, "without autoscale the spec holds"


@pytest.mark.parametrize("fault", ["learner", "suspend"])
def test_the_number_stays_when_the_job_is_interrupted(fault: str) -> None:
    world = learn(following().up(), 60.0)
    if fault == "learner":
        world.crash(LEARNER, 137).settle()
        assert world.container(LEARNER)["restartCount"] == 1
    else:
        world.spec(runPolicy={"suspend": True}).settle()
        world.end_deleted().after(1000).settle()
        assert (samplers(world), world.status.sampler.summary) == ([], "0/4")
        world.spec(runPolicy={"suspend": False}).settle()
        world.run().settle()
    assert (len(samplers(world)), number(world)) == (4, (4, "Active"))
    assert world.status.sampler.summary == "4/4"


def test_a_sampler_that_is_replaced_is_not_removed() -> None:
    world = learn(following().up(), 60.0)
    world.evict(SAMPLER_0).settle()
    world.after(20).settle()
    world.end_deleted().run().settle()
    assert (len(samplers(world)), world.counts) == (4, (0, 1))


def test_the_number_stays_at_the_end_of_the_job() -> None:
    world = learn(following().up(), 60.0)
    learn(world, 100.0, 2 * SECONDS, stop_reason="stop.environmentSteps is met")
    assert number(world) == (4, "Active"), "the learner only evaluates and writes its results"
    world.die(LEARNER, 0, "Completed", termination("Completed", "done", report(9999, "Finished"))).settle()
    world.after(1000).settle()
    world.end_deleted().settle()
    assert (world.status.phase, world.status.sampler.summary) == ("Succeeded", "0/4")
    assert number(world) == (4, "Active")
