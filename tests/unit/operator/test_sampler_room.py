"""Samplers give way to a learner or a replay pod that has no node or is not admitted by its queue."""

from __future__ import annotations

import pytest
from operator_world import LEARNER, World, dedicated, make_world
from rltraining_operator.observe.admission import AdmissionFailure
from rltraining_operator.observe.pod_view import Pod


def samplers(world: World) -> list[int]:
    """The indices of the samplers that stay."""
    pods = map(Pod, world.pods.values())
    return sorted(pod.index for pod in pods if pod.role == "sampler" and not pod.deleting)


def waiting(pod: str, reason: str, replicas: int = 3, replays: int = 0) -> World:
    """A running job that lost a pod, which cannot be scheduled again."""
    world = make_world(sampler={"replicas": replicas}, **(dedicated(replays) if replays else {})).up()
    world.after(100).vanish(pod).settle()
    world.cannot_schedule(pod, reason=reason)
    return world


@pytest.mark.parametrize("reason", ["Unschedulable", "SchedulingGated"])
@pytest.mark.parametrize(("pod", "replays"), [(LEARNER, 0), ("demo-replay-0", 1)])
def test_samplers_give_way_one_by_one_until_the_pod_has_a_place(pod: str, replays: int, reason: str) -> None:
    world = waiting(pod, reason, replays=replays)
    seen = []
    for _ in range(3):
        world.settle()
        seen.append(samplers(world))
        world.after(10).end_deleted()
    assert seen == [[0, 1, 2], [0, 1], [0]]
    # The pod is scheduled, and the samplers are created again.
    world.run(pod).settle()
    world.settle()
    assert samplers(world) == [0, 1, 2]
    assert world.counts == (0, 1), "only the lost pod was a disruption"


def test_a_pass_is_due_when_the_next_sampler_gives_way() -> None:
    world = waiting(LEARNER, "Unschedulable")
    assert world.settle().plan().requeue_after == 10
    world.after(12).settle()
    assert world.plan().requeue_after == 8


def test_of_many_samplers_a_tenth_gives_way_at_a_time() -> None:
    world = waiting(LEARNER, "Unschedulable", replicas=40)
    world.after(10).settle()
    assert len(samplers(world)) == 36


def test_a_job_of_which_no_sampler_has_a_place_keeps_its_positions_in_the_queue() -> None:
    world = make_world(sampler={"replicas": 3}).settle()
    for name in world.pods:
        world.cannot_schedule(name, reason="SchedulingGated")
    for _ in range(5):
        world.after(10).settle()
    assert samplers(world) == [0, 1, 2]


def test_a_sampler_that_found_a_node_before_the_learner_stays_for_a_while() -> None:
    """After a drain all pods of a job wait, and the scheduler places them one after the other."""
    world = make_world(sampler={"replicas": 2}).settle()
    for name in world.pods:
        world.cannot_schedule(name)
    world.after(60).settle()
    world.run("demo-sampler-0").after(9).settle()
    assert samplers(world) == [0, 1]
    world.after(1).settle()
    assert samplers(world) == [0]


def test_no_sampler_takes_the_room_of_a_learner_that_waits() -> None:
    world = waiting(LEARNER, "Unschedulable").after(15)
    world.vanish("demo-sampler-0").settle()
    assert "demo-sampler-0" not in world.pods


GANG = pytest.mark.parametrize("key", ["volcano", "coscheduling"])


@GANG
def test_the_sampler_of_a_gang_is_created_while_the_learner_waits_for_it(key: str) -> None:
    """Otherwise each of the two would wait for the other without end."""
    world = make_world(runPolicy={"schedulingPolicy": {key: {}}})
    full = AdmissionFailure("QuotaExceeded", "exceeded quota")
    world.rejects = lambda child: full if "-sampler-" in child["metadata"]["name"] else None
    world.settle()
    world.cannot_schedule(LEARNER, "1/2 pods of the gang exist").after(60).settle()
    assert samplers(world) == []
    world.rejects = lambda child: None
    world.settle()
    assert samplers(world) == [0]


@GANG
@pytest.mark.parametrize(("together", "kept"), [(None, [0]), (3, [0, 1]), (1, [])])
def test_the_samplers_of_a_gang_do_not_give_way(key: str, together: int | None, kept: list[int]) -> None:
    field = {"volcano": "minAvailable", "coscheduling": "minMember"}[key]
    policy = {key: {field: together} if together else {}}
    world = make_world(sampler={"replicas": 3}, runPolicy={"schedulingPolicy": policy}).up()
    world.after(100).vanish(LEARNER).settle()
    world.cannot_schedule(LEARNER)
    for _ in range(4):
        world.after(10).settle().end_deleted()
    assert samplers(world) == kept


def test_samplers_do_not_give_way_to_a_learner_without_its_claim() -> None:
    world = make_world(sampler={"replicas": 3}).up()
    world.vanish(LEARNER).settle()
    world.cannot_schedule(LEARNER, 'persistentvolumeclaim "mine" not found').after(100).settle()
    assert samplers(world) == [0, 1, 2]
    world.cannot_schedule(LEARNER, "0/1 nodes are available: 1 Insufficient cpu").settle()
    world.after(100).settle()
    assert samplers(world) == []


def test_samplers_do_not_give_way_to_a_sampler() -> None:
    world = make_world(sampler={"replicas": 3}).up().after(100)
    world.vanish("demo-sampler-0").settle()
    world.cannot_schedule("demo-sampler-0").after(100).settle()
    assert samplers(world) == [0, 1, 2]


@pytest.mark.parametrize(("pod", "replays"), [(LEARNER, 0), ("demo-replay-0", 1)])
def test_no_sampler_takes_the_room_that_an_ending_learner_leaves_in_the_quota(pod: str, replays: int) -> None:
    """Once its containers have ended, a pod no longer counts against the quota. It still exists for a while."""
    world = make_world(sampler={"replicas": 3}, **(dedicated(replays) if replays else {}))
    full = AdmissionFailure("QuotaExceeded", "exceeded quota")
    room = len(world.settle().pods) - 1
    world = make_world(sampler={"replicas": 3}, **(dedicated(replays) if replays else {}))

    def used() -> int:
        return sum(pod["status"]["phase"] not in ("Succeeded", "Failed") for pod in world.pods.values())

    world.rejects = lambda child: full if child["kind"] == "Pod" and used() >= room else None
    world.up()
    assert samplers(world) == [0, 1]
    before = {name: raw["metadata"]["uid"] for name, raw in world.pods.items() if "sampler" in name}
    world.after(100).ask_to_end(pod).settle()
    world.pods[pod]["status"]["phase"] = "Failed"
    world.after(5).settle()
    world.vanish(pod).settle()
    assert {name: raw["metadata"]["uid"] for name, raw in world.pods.items() if "sampler" in name} == before
    assert pod in world.pods
