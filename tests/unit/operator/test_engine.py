"""Engine and reconcile with a cluster that records all calls, in order, and can reject them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace

import pytest
from operator_world import LEARNER, SAMPLER_0, START, World, make_world, report, termination
from rltraining_api.contract import LearnerReport
from rltraining_operator.cluster import Awaited, Event, Key, Manifest, Ref
from rltraining_operator.engine import Engine
from rltraining_operator.errors import NameTakenError, NotFoundError, RejectedError, UnavailableError
from rltraining_operator.observe.mounts import MountFailure, find_mount_failure
from rltraining_operator.observe.observed import Observed, Pod
from rltraining_operator.reconcile import PARALLEL_CALLS, reconcile
from rltraining_operator.settings import Settings

KEY = Key("default", "demo")


class RecordingCluster:
    """A `Cluster` over a world. Records every call, and rejects the calls that a test selects."""

    def __init__(self, world: World, refuse: Callable[[str], Exception | None] = lambda call: None) -> None:
        self.world = world
        self.calls: list[str] = []
        self.events: list[Event] = []
        self.refuse = refuse

    async def keys(self) -> list[Key]:
        return [KEY]

    async def observe(self, key: Key) -> Observed | None:
        self._note(f"observe {key.name}")
        if key != KEY or self.world.job_deleted:
            return None
        # Without the answers, so that `learner_report` and `mount_failure` are called.
        return replace(self.world.observe(), report=None, awaited=False, mount_failure=None)

    async def learner_report(self, pod: Pod, token: str) -> LearnerReport | Awaited | None:
        self._note(f"report {pod.name} {token[:4]}")
        return "awaited" if self.world.awaited else self.world.reports.get(pod.name)

    async def mount_failure(self, pod: Pod) -> MountFailure | None:
        self._note(f"events {pod.name}")
        return find_mount_failure(pod, self.world.pod_events.get(pod.name, ()))

    def creating(self, namespace: str) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def create(self, key: Key, child: Manifest) -> None:
        self._note(f"create {child['kind']} {child['metadata']['name']}")
        self.world._create(child)

    async def apply(self, key: Key, child: Manifest) -> None:
        self._note(f"apply {child['kind']}")
        self.world._create(child)

    async def delete(self, key: Key, ref: Ref) -> None:
        self._note(f"delete {ref.kind} {ref.name}")
        self.world.delete(ref)

    async def patch_status(self, key: Key, uid: str, status: Manifest) -> None:
        self._note(f"status {status['phase']}")
        self.world.job["status"] = status

    async def emit(self, key: Key, uid: str, event: Event) -> None:
        self._note(f"event {event.reason}")
        self.events.append(event)

    def _note(self, call: str) -> None:
        self.calls.append(call)
        if error := self.refuse(call):
            raise error


def one_pass(cluster: RecordingCluster) -> float | None:
    return asyncio.run(reconcile(cluster, KEY, lambda: cluster.world.now, Settings()))


def test_a_first_pass_in_its_order() -> None:
    cluster = RecordingCluster(make_world())
    one_pass(cluster)
    assert cluster.calls == [
        "observe demo",
        "apply NetworkPolicy",
        "apply Service",
        "apply ConfigMap",
        "create Secret demo-token-job-uid",
        f"create Pod {LEARNER}",
        f"create Pod {SAMPLER_0}",
        "create Pod demo-sampler-1",
        "event PodsCreated",
        "observe demo",
        "status Pending",
    ]


def test_a_failure_is_told_then_in_the_status_and_then_its_pod_is_deleted() -> None:
    world = make_world().up()
    cluster = RecordingCluster(world.after(100).evict(SAMPLER_0))
    cluster.refuse = lambda call: UnavailableError("down") if call.startswith("status") else None
    for _ in range(2):
        with pytest.raises(UnavailableError):
            one_pass(cluster)
    assert SAMPLER_0 in world.pods
    first, second = (event for event in cluster.events if event.reason == "Disrupted")
    assert first == second, "equal events are counted, not repeated"
    cluster.refuse = lambda call: None
    one_pass(cluster)
    assert [call.split()[0] for call in cluster.calls[-4:]] == ["event", "status", "delete", "event"]
    assert world.counts == (0, 1)


def test_only_the_first_learner_is_asked_with_the_token() -> None:
    cluster = RecordingCluster(make_world(learner={"replicas": 3}).up().after(6).say(report(7)))
    one_pass(cluster)
    assert [call for call in cluster.calls if call.startswith("report")] == [f"report {LEARNER} abab"]
    assert cluster.world.status.progress.environment_steps == 7


def test_an_operator_that_was_away_waits_for_the_learners_first_answer() -> None:
    cluster = RecordingCluster(make_world().up().after(6).say(report(7)))
    one_pass(cluster)
    cluster.world.after(1000).awaited = True
    one_pass(cluster)
    assert cluster.world.condition("Progressing") == ("True", "Training")
    cluster.world.awaited = False
    cluster.world.reports.clear()
    one_pass(cluster)
    assert cluster.world.condition("Progressing") == ("Unknown", "LearnerUnreachable")


def test_the_last_report_of_a_trainer_precedes_an_earlier_answer_while_a_sidecar_runs() -> None:
    cluster = RecordingCluster(make_world(runPolicy={"cleanPodPolicy": "None"}).up())
    earlier = report(900, stopReason="stop.environmentSteps is reached")
    last = termination("Completed", "done", report(1000, "Finished", stopReason="stop.environmentSteps"))
    world = cluster.world.after(6).die(LEARNER, 0, "Completed", last)
    world.pods[LEARNER]["status"]["phase"] = "Running"
    world.pods[LEARNER]["status"]["containerStatuses"].append({"name": "proxy", "state": {"running": {}}})
    world.say(earlier)  # an answer is kept for half a minute
    one_pass(cluster)
    assert (world.status.phase, world.status.progress.environment_steps) == ("Succeeded", 1000)


def test_a_learners_answer_is_not_lost_where_pods_of_a_job_without_status_are_made() -> None:
    cluster = RecordingCluster(make_world().up().after(100).say(report(7)))
    cluster.world.vanish(SAMPLER_0)
    cluster.world.job["status"] = {}
    one_pass(cluster)
    assert cluster.world.status.progress.environment_steps == 7


def test_one_pod_that_is_refused_does_not_stop_the_others() -> None:
    cluster = RecordingCluster(make_world(sampler={"replicas": 3}))
    cluster.refuse = lambda call: UnavailableError("down") if call == "create Pod demo-sampler-1" else None
    with pytest.raises(UnavailableError):
        one_pass(cluster)
    assert list(cluster.world.pods) == [LEARNER, SAMPLER_0, "demo-sampler-2"]


QUOTA = 'pods "x" is forbidden: exceeded quota: few, requested: pods=1, used: pods=0, limited: pods=0'


def test_what_the_cluster_refuses_is_told_in_the_same_pass_and_tried_again_with_one_pod_only() -> None:
    cluster = RecordingCluster(make_world())
    cluster.refuse = lambda call: RejectedError(QUOTA) if call.startswith("create Pod") else None
    assert one_pass(cluster) == 1.0
    sentence = f"Pod {LEARNER}: {QUOTA}"
    assert cluster.world.condition("Ready") == ("False", "QuotaExceeded")
    assert cluster.world.condition("ReplicaFailure") == ("True", "QuotaExceeded")
    assert cluster.world.status.message == sentence
    cluster.calls.clear()
    for seconds, again in [(20, 10.0), (100, 30.0)]:
        cluster.world.after(seconds)
        assert one_pass(cluster) == again
    assert cluster.calls == ["observe demo", f"create Pod {LEARNER}"] * 2
    assert cluster.events == [Event("Warning", "QuotaExceeded", sentence)]
    cluster.refuse = lambda call: None
    one_pass(cluster)
    one_pass(cluster)
    assert len(cluster.world.pods) == 3
    assert cluster.world.condition("ReplicaFailure") == ("False", "Accepted")
    assert cluster.world.condition("Ready") == ("False", "MembersNotReady")


def test_samplers_give_way_to_a_learner_that_a_quota_refuses() -> None:
    cluster = RecordingCluster(make_world().up().after(100))
    cluster.world.vanish(LEARNER)
    full = RejectedError(QUOTA)
    cluster.refuse = lambda call: full if "create Pod" in call and len(cluster.world.pods) >= 2 else None
    one_pass(cluster)
    acts = [call for call in cluster.calls if call.startswith(("create", "delete", "event"))]
    created, deleted = f"create Pod {LEARNER}", "delete Pod demo-sampler-1"
    assert acts == ["event Disrupted", created, "event QuotaExceeded", deleted, "event PodsDeleted"]
    # Nothing more is deleted until that sampler has ended.
    one_pass(cluster)
    assert [call for call in cluster.calls if call.startswith("delete")] == ["delete Pod demo-sampler-1"]
    # The learner gets its place, and the sampler waits for another one.
    cluster.world.vanish("demo-sampler-1")
    one_pass(cluster)
    assert set(cluster.world.pods) == {LEARNER, SAMPLER_0}
    assert cluster.world.status.disruptions == 1, "the learner's, and none for a sampler that gave way"


def test_samplers_that_give_way_to_two_learners_are_not_counted_as_lost() -> None:
    """One learner waits for a node, and the quota refuses the other."""
    cluster = RecordingCluster(make_world(sampler={"replicas": 40}, learner={"replicas": 2}).up())
    cluster.world.after(100).vanish(LEARNER).settle()
    cluster.world.cannot_schedule(LEARNER).settle()
    cluster.world.after(10).vanish("demo-learner-1")
    full = RejectedError(QUOTA)
    cluster.refuse = lambda call: full if call == "create Pod demo-learner-1" else None
    for _ in range(2):
        one_pass(cluster)
    assert cluster.world.status.sampler.indices == "0-35"
    assert cluster.world.counts == (0, 2), "the two learners"


def test_samplers_do_not_give_way_to_a_learner_that_is_refused_for_another_reason() -> None:
    cluster = RecordingCluster(make_world().up().after(100))
    cluster.world.vanish(LEARNER)
    cluster.refuse = lambda call: RejectedError("violates PodSecurity") if "create Pod" in call else None
    one_pass(cluster)
    assert set(cluster.world.pods) == {SAMPLER_0, "demo-sampler-1"}


def test_without_its_network_policy_a_job_gets_no_pods() -> None:
    cluster = RecordingCluster(make_world())
    forbidden = 'User "system:serviceaccount:x:y" cannot create resource "networkpolicies"'
    cluster.refuse = lambda call: RejectedError(forbidden) if call == "apply NetworkPolicy" else None
    one_pass(cluster)
    assert cluster.world.pods == {}
    assert cluster.world.status.message == f"NetworkPolicy demo: {forbidden}"
    assert cluster.world.condition("ReplicaFailure") == ("True", "OperatorForbidden")


def test_a_name_that_is_taken_is_told() -> None:
    cluster = RecordingCluster(make_world())
    taken = NameTakenError(f"Pod {LEARNER} exists already and is not this job's: delete it")
    cluster.refuse = lambda call: taken if call == f"create Pod {LEARNER}" else None
    one_pass(cluster)
    assert cluster.world.condition("Ready") == ("False", "NameTaken")
    assert cluster.world.status.message == str(taken)
    assert [event.reason for event in cluster.events] == ["NameTaken"]
    assert cluster.world.pods == {}


def test_an_event_that_cannot_be_told_stops_nothing() -> None:
    cluster = RecordingCluster(make_world().up().after(100).evict(SAMPLER_0))
    cluster.refuse = lambda call: RejectedError("no events") if call.startswith("event") else None
    one_pass(cluster)
    assert f"delete Pod {SAMPLER_0}" in cluster.calls
    assert cluster.world.counts == (0, 1)


def test_only_so_many_calls_are_under_way_at_a_time() -> None:
    world = make_world(sampler={"replicas": 100}).up()
    world.job["spec"]["sampler"]["replicas"] = 1
    cluster = RecordingCluster(world)
    most = under_way = 0

    async def slow(key: Key, ref: Ref) -> None:
        nonlocal most, under_way
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        world.delete(ref)

    cluster.delete = slow  # type: ignore[method-assign]
    one_pass(cluster)
    assert most == PARALLEL_CALLS
    assert sum("deletionTimestamp" in pod["metadata"] for pod in world.pods.values()) == 99


def test_a_learner_is_not_asked_more_often_than_its_answers_are_taken() -> None:
    cluster = RecordingCluster(make_world().up().after(6).say(report(7)))
    for seconds, asked in [(0, True), (5, False), (5, True)]:
        cluster.calls.clear()
        cluster.world.after(seconds)
        one_pass(cluster)
        assert any(call.startswith("report") for call in cluster.calls) is asked, f"after {seconds} s more"
        cluster.world.say(report(cluster.world.reports[LEARNER].progress.environment_steps + 1))


@pytest.mark.parametrize("gone", ["observe", "apply", "create", "status"])
def test_a_job_that_is_deleted_meanwhile_is_no_error(gone: str) -> None:
    cluster = RecordingCluster(make_world())
    if gone == "observe":
        cluster.world.job_deleted = True
    else:
        cluster.refuse = lambda call: NotFoundError("gone") if call.startswith(gone) else None
    assert one_pass(cluster) is None
    assert cluster.calls[-1].startswith(gone), "nothing more is tried; garbage collection takes what was made"


async def test_the_engine_finds_jobs_nobody_told_it_of_and_tries_again_after_errors() -> None:
    errors = iter([UnavailableError("down"), UnavailableError("down")])
    cluster = RecordingCluster(
        make_world(), lambda call: next(errors, None) if call == "observe demo" else None
    )
    engine = Engine(cluster, clock=lambda: START)
    working = asyncio.create_task(engine.run())
    await asyncio.sleep(5)
    assert cluster.calls[:3] == ["observe demo"] * 3
    assert "event PodsCreated" in cluster.calls
    cluster.calls.clear()
    engine.mark(KEY)
    await asyncio.sleep(1)
    assert cluster.calls[0] == "observe demo"
    engine.stop()
    await working


class Durations:
    """A meter that records its calls."""

    def __init__(self) -> None:
        self.passes: list[tuple[float, str]] = []

    def waited(self, seconds: float) -> None:
        pass

    def passed(self, seconds: float, error: BaseException | None) -> None:
        self.passes.append((round(seconds, 3), str(error or "")))


class SlowCluster(RecordingCluster):
    """Takes three seconds for an observation."""

    async def observe(self, key: Key) -> Observed | None:
        await asyncio.sleep(3)
        return await super().observe(key)


async def test_passes_are_measured_whether_they_succeed_or_not() -> None:
    meter, cluster = Durations(), SlowCluster(make_world().up())
    engine = Engine(cluster, resync_seconds=1e6, meter=meter)
    running = asyncio.create_task(engine.run())
    await asyncio.sleep(10)
    good = list(meter.passes)
    meter.passes.clear()
    cluster.refuse = lambda call: UnavailableError("down")
    engine.mark(KEY)
    await asyncio.sleep(3.05)
    engine.stop()
    await running
    assert {seconds for seconds, _ in good} <= {3.0, 6.0}, "one look, or a second after something was done"
    assert {error for _, error in good} == {""}
    assert meter.passes == [(3.0, "down")]


def test_a_roll_out_leaves_room_for_other_events() -> None:
    """It deletes and creates pods many times, and the number of a job's events is limited."""
    world = make_world(sampler={"replicas": 3}).up()
    world.spec(sampler={"replicas": 3, "template": {"spec": {"nodeSelector": {"a": "b"}}}})
    cluster = RecordingCluster(world)
    for _ in range(4):
        one_pass(cluster)
        world.end_deleted()
        one_pass(cluster)
        world.run()
    told = [(event.reason, event.reported) for event in cluster.events]
    assert told == [
        ("RollingUpdate", False),
        ("PodsDeleted", False),
        *[("PodsCreated", True), ("PodsDeleted", True)] * 2,
        ("PodsCreated", True),
        ("AllSamplersUpdated", False),
    ]
