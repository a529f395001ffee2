"""A volume that cannot be mounted is named by its cause, from the kubelet's events, soon and only then."""

from __future__ import annotations

from typing import Any

import pytest
from operator_world import LEARNER, SAMPLER_0, SAMPLER_1, World, make_world, report, termination
from rltraining_operator.observe.mounts import find_mount_failure
from rltraining_operator.observe.pod_view import Pod
from rltraining_operator.settings import EVENTS_AFTER_SECONDS, EVENTS_INTERVAL_SECONDS, START_SECONDS
from test_engine import RecordingCluster, one_pass

MISSING = 'MountVolume.SetUp failed for volume "code" : configmap "nothere" not found'
CAUSE = 'MountVolume.SetUp failed for volume "code": configmap "nothere" not found'
SENTENCE = f"pod {LEARNER} cannot start: {CAUSE}"


def stuck(*names: str) -> World:
    """Returns a job with scheduled pods. The ConfigMap of its learner is missing."""
    world = make_world().settle()
    world.schedule(*(names or (LEARNER,)), PodReadyToStartContainers="False")
    world.event_of(LEARNER, "FailedMount", MISSING)
    world.events.clear()
    return world


def asked(cluster: RecordingCluster) -> list[str]:
    """Returns the pods whose events were read since the last call."""
    names = [call.split()[1] for call in cluster.calls if call.startswith("events ")]
    cluster.calls.clear()
    return names


def test_a_missing_config_map_is_named_after_seconds_in_condition_message_and_event() -> None:
    world = stuck()
    world.step()
    assert world.condition("Ready") == ("False", "MembersNotReady")
    assert world.plan().requeue_after == EVENTS_AFTER_SECONDS
    world.after(EVENTS_AFTER_SECONDS).settle()
    assert (world.condition("Ready"), world.status.message) == (("False", "VolumeMountFailed"), SENTENCE)
    assert world.events == [("VolumeMountFailed", SENTENCE)]
    writes = world.writes
    world.after(START_SECONDS).event_of(LEARNER, "FailedMount", MISSING).settle()
    assert world.writes == writes, "the cause is reported instead of the delay, and once"


def test_the_report_ends_when_the_pod_starts() -> None:
    world = stuck().after(EVENTS_AFTER_SECONDS).settle()
    world.run(LEARNER).settle()
    assert world.condition("Ready") == ("False", "MembersNotReady")
    assert "cannot start" not in world.status.message


def test_the_events_are_read_again_while_it_lasts_and_less_and_less_often() -> None:
    world, waits = stuck().after(EVENTS_AFTER_SECONDS), []
    for _ in range(20):
        wait = world.settle().plan().requeue_after
        assert wait is not None
        waits.append(wait)
        world.after(wait)
    shortest, longest = EVENTS_INTERVAL_SECONDS
    assert waits[:2] == [shortest, shortest]
    assert max(waits) <= longest
    assert sum(waits[:6]) < START_SECONDS, "often enough in the first minute"


def test_a_pass_reads_the_events_of_one_pod_the_first_that_waits() -> None:
    world = stuck(LEARNER, SAMPLER_0, SAMPLER_1)
    cluster = RecordingCluster(world)
    one_pass(cluster)
    assert asked(cluster) == [], "most pods have their volumes within seconds"
    world.after(EVENTS_AFTER_SECONDS)
    one_pass(cluster)
    assert asked(cluster) == [LEARNER]
    assert world.condition("Ready") == ("False", "VolumeMountFailed")
    world.run(LEARNER)
    one_pass(cluster)
    assert asked(cluster) == [SAMPLER_0]


def _with_volumes(world: World) -> None:
    world.schedule(LEARNER, PodReadyToStartContainers="True")  # its image is being pulled


def _ready_without_a_container(world: World) -> None:
    """Some simulated nodes report no containers."""
    world.schedule(LEARNER, Ready="True")
    world.pods[LEARNER]["status"] |= {"phase": "Running", "containerStatuses": []}


def _never_scheduled(world: World) -> None:
    world.pods[LEARNER]["status"]["conditions"] = []


def _deleted(world: World) -> None:
    world.ask_to_end(LEARNER)


def _in_an_init_container(world: World) -> None:
    running = {"running": {"startedAt": world.now.isoformat()}}
    world.pods[LEARNER]["status"]["initContainerStatuses"] = [{"name": "fetch", "state": running}]
    world.wait_for(LEARNER, "PodInitializing")


@pytest.mark.parametrize(
    "happen",
    [World.run, _with_volumes, _ready_without_a_container, _never_scheduled, _deleted, _in_an_init_container],
)
def test_the_events_of_a_pod_that_does_not_wait_for_volumes_are_not_read(happen: Any) -> None:
    world = stuck()
    happen(world)
    cluster = RecordingCluster(world.after(1000))
    one_pass(cluster)
    assert asked(cluster) == []


def test_a_job_that_is_over_reads_no_events() -> None:
    world = make_world(runPolicy={"cleanPodPolicy": "None"}).up()
    world.schedule(SAMPLER_1).wait_for(SAMPLER_1, "ContainerCreating")
    ended = termination("Completed", "", report(1, "Finished"))
    world.die(LEARNER, 0, message=ended).settle()
    assert world.status.completion_time is not None
    cluster = RecordingCluster(world.after(1000))
    one_pass(cluster)
    assert asked(cluster) == []


def test_a_pod_with_init_containers_waits_for_its_volumes_too() -> None:
    world = stuck()
    creating = {"waiting": {"reason": "PodInitializing"}}
    world.pods[LEARNER]["status"]["initContainerStatuses"] = [{"name": "fetch", "state": creating}]
    world.wait_for(LEARNER, "PodInitializing")
    world.after(EVENTS_AFTER_SECONDS).settle()
    assert world.condition("Ready") == ("False", "VolumeMountFailed")


def event(reason: str, message: str, second: int, **more: Any) -> dict[str, Any]:
    return {
        "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"},
        "reason": reason,
        "message": message,
        "lastTimestamp": f"2026-01-01T00:00:{second:02}Z",
    } | more


SUMMARY = "Unable to attach or mount volumes: unmounted volumes=[code], timed out waiting for the condition"
NEWER = 'secret "other" not found'
ATTACH = 'Multi-Attach error for volume "pvc-1" Volume is already exclusively attached to one node'
NFS = (
    'MountVolume.SetUp failed for volume "data" : exit status 32\nMounting arguments: -t nfs\n /pods/UID/data'
)
IN_SERIES = {
    "lastTimestamp": None,
    "eventTime": "2026-01-01T00:00:01.000000Z",
    "series": {"lastObservedTime": "2026-01-01T00:00:30.000000Z"},
}
CASES: dict[str, tuple[list[dict[str, Any]], str | None]] = {
    "no event": ([], None),
    "another problem": ([event("FailedScheduling", "no node", 1), event("BackOff", "image", 2)], None),
    "the newest": ([event("FailedMount", NEWER, 9), event("FailedMount", MISSING, 1)], NEWER),
    "a volume that cannot be attached": ([event("FailedAttachVolume", ATTACH, 1)], ATTACH),
    "a cause rather than a newer summary": (
        [event("FailedMount", MISSING, 1), event("FailedMount", SUMMARY, 9)],
        CAUSE,
    ),
    "a summary without a cause": ([event("FailedMount", SUMMARY, 9)], SUMMARY),
    "mounted since": ([event("FailedMount", MISSING, 3), event("Pulling", "image", 4)], None),
    "mounted in the same second": ([event("FailedMount", MISSING, 3), event("Pulled", "image", 3)], None),
    "mounted before a reboot": ([event("Started", "", 3), event("FailedMount", MISSING, 4)], CAUSE),
    "two volumes that fail together": (
        [event("FailedMount", NEWER, 9), event("FailedMount", MISSING, 8)],
        CAUSE,
    ),
    "a series": ([event("FailedMount", NEWER, 9), event("FailedMount", MISSING, 1, **IN_SERIES)], CAUSE),
    "an event without times": ([event("FailedMount", MISSING, 9, lastTimestamp=None)], CAUSE),
    "an event without a message": ([event("FailedMount", "", 9)], None),
    "several lines and a uid": (
        [event("FailedMount", NFS, 1)],
        'MountVolume.SetUp failed for volume "data": exit status 32 Mounting arguments: -t nfs /pods/…/data',
    ),
}


@pytest.mark.parametrize(("events", "cause"), CASES.values(), ids=CASES)
def test_the_cause_among_the_events_of_a_pod(events: list[dict[str, Any]], cause: str | None) -> None:
    pod = Pod({"metadata": {"name": LEARNER, "uid": "UID"}})
    for order in (events, events[::-1]):
        found = find_mount_failure(pod, order)
        assert (found and found.cause) == cause
