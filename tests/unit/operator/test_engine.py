"""Engine and reconcile against a cluster that records what is asked of it, in which order, and can refuse."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from operator_world import LEARNER, SAMPLER_0, START, World, make_world, report
from rltraining_api.contract import LearnerReport
from rltraining_operator.cluster import Event, Key, Manifest, Ref
from rltraining_operator.engine import Engine
from rltraining_operator.errors import NotFoundError, RejectedError, UnavailableError
from rltraining_operator.observed import Observed, Pod
from rltraining_operator.reconcile import reconcile
from rltraining_operator.settings import Settings

KEY = Key("default", "demo")


class RecordingCluster:
    """A `Cluster` over a world: it notes every call, and refuses those a test wants refused."""

    def __init__(self, world: World, refuse: Callable[[str], Exception | None] = lambda call: None) -> None:
        self.world = world
        self.calls: list[str] = []
        self.called = asyncio.Event()
        self.refuse = refuse

    async def keys(self) -> list[Key]:
        return [KEY]

    async def observe(self, key: Key) -> Observed | None:
        self._note(f"observe {key.name}")
        return self.world.observe() if key == KEY and not self.world.job_deleted else None

    async def learner_report(self, pod: Pod, token: str) -> LearnerReport | None:
        self._note(f"report {pod.name} {token[:4]}")
        return self.world.reports.get(pod.name)

    async def create(self, key: Key, child: Manifest) -> None:
        self._note(f"create {child['kind']} {child['metadata']['name']}")
        self.world._create(child)

    async def apply(self, key: Key, child: Manifest) -> None:
        self._note(f"apply {child['kind']}")
        self.world._create(child)

    async def delete(self, key: Key, ref: Ref) -> None:
        self._note(f"delete {ref.kind} {ref.name}")
        self.world.ask_to_end(ref.name)

    async def patch_status(self, key: Key, uid: str, status: Manifest) -> None:
        self._note(f"status {status['phase']}")
        self.world.job["status"] = status

    async def emit(self, key: Key, uid: str, event: Event) -> None:
        self._note(f"event {event.reason}")

    def _note(self, call: str) -> None:
        self.calls.append(call)
        self.called.set()
        if error := self.refuse(call):
            raise error


def one_pass(cluster: RecordingCluster) -> float | None:
    return asyncio.run(reconcile(cluster, KEY, lambda: cluster.world.now, Settings()))


def test_a_first_pass_in_its_order() -> None:
    cluster = RecordingCluster(make_world())
    one_pass(cluster)
    assert cluster.calls == [
        "observe demo",
        "status Pending",
        "apply Service",
        "apply ConfigMap",
        "create Secret demo-token",
        f"create Pod {LEARNER}",
        f"create Pod {SAMPLER_0}",
        "create Pod demo-sampler-1",
        "event PodsCreated",
    ]


def test_a_failure_is_in_the_status_before_its_pod_is_deleted() -> None:
    world = make_world().up()
    cluster = RecordingCluster(world.after(100).evict(SAMPLER_0))
    cluster.refuse = lambda call: UnavailableError("down") if call.startswith("status") else None
    with pytest.raises(UnavailableError):
        one_pass(cluster)
    assert SAMPLER_0 in world.pods
    cluster.refuse = lambda call: None
    one_pass(cluster)
    assert [call.split()[0] for call in cluster.calls[-4:]] == ["status", "delete", "event", "event"]
    assert world.counts == (0, 1)


def test_the_learner_is_asked_with_the_token() -> None:
    cluster = RecordingCluster(make_world().up().after(6).say(report(7)))
    one_pass(cluster)
    assert f"report {LEARNER} abab" in cluster.calls
    assert cluster.world.status.progress.environment_steps == 7


def test_one_pod_that_is_refused_does_not_stop_the_others() -> None:
    cluster = RecordingCluster(make_world())
    cluster.refuse = lambda call: UnavailableError("quota") if call == f"create Pod {LEARNER}" else None
    with pytest.raises(UnavailableError):
        one_pass(cluster)
    assert list(cluster.world.pods) == [SAMPLER_0, "demo-sampler-1"]


def test_what_the_cluster_refuses_is_told() -> None:
    cluster = RecordingCluster(make_world())
    cluster.refuse = lambda call: RejectedError("exceeded quota") if call.startswith("create Pod") else None
    with pytest.raises(RejectedError):
        one_pass(cluster)
    assert cluster.calls[-1] == "event Rejected"


@pytest.mark.parametrize("gone", ["observe", "status"])
def test_a_job_that_is_deleted_meanwhile_is_no_error(gone: str) -> None:
    cluster = RecordingCluster(make_world())
    if gone == "observe":
        cluster.world.job_deleted = True
    else:
        cluster.refuse = lambda call: NotFoundError("gone") if call.startswith(gone) else None
    assert one_pass(cluster) is None
    assert cluster.world.pods == {}


def test_the_engine_finds_jobs_nobody_told_it_of_and_tries_again_after_errors() -> None:
    trouble = iter([UnavailableError("down"), UnavailableError("down")])
    cluster = RecordingCluster(
        make_world(), lambda call: next(trouble, None) if call == "observe demo" else None
    )

    async def scenario() -> None:
        engine = Engine(cluster, clock=lambda: START)
        working = asyncio.create_task(engine.run())
        async with asyncio.timeout(5):
            while "event PodsCreated" not in cluster.calls:
                cluster.called.clear()
                await cluster.called.wait()
            cluster.called.clear()
            engine.mark(KEY)
            await cluster.called.wait()
        engine.stop()
        await working

    asyncio.run(scenario())
    assert cluster.calls[:3] == ["observe demo"] * 3
