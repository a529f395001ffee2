"""Two operators that serve the same job are reported, and a replaced one is not."""

from __future__ import annotations

import asyncio

import pytest
from fake_api_server import FakeApiServer, until
from rltraining_operator.cluster import Key
from rltraining_operator.kube.rivals import (
    IDLE_SECONDS,
    LAST_SECONDS,
    LAST_WRITES,
    PREFIX,
    Rivals,
    status_manager,
    status_writers,
)
from test_kubernetes_cluster import JOB, PODS, Scene, job

KEY = Key("default", "demo")
OURS, THEIRS = status_manager("system", "ours"), status_manager("team-ops", "theirs")
BOTH = ("system/ours", "team-ops/theirs")


class Watcher:
    """One operator's view of one job, on a clock of the test."""

    def __init__(self) -> None:
        self.now, self.writers = 0.0, {OURS: "t0"}
        self.rivals = Rivals(OURS, lambda: self.now)

    def after(self, seconds: float) -> Watcher:
        self.now += seconds
        return self

    def observe(self, theirs: str | None = None, uid: str = "uid-1") -> tuple[str, ...] | None:
        """Makes a pass. `theirs` is the time of the other operator's last write."""
        self.writers |= {THEIRS: theirs} if theirs else {}
        return self.rivals.observe(KEY, uid, dict(self.writers))

    def write(self, times: int = 1) -> Watcher:
        for _ in range(times):
            self.rivals.wrote(KEY)
        return self


def test_an_operator_that_writes_after_a_write_of_ours_is_a_rival() -> None:
    watcher = Watcher()
    assert watcher.observe() is None
    assert watcher.write().observe("t1") == BOTH
    assert watcher.after(LAST_SECONDS - 1).observe() == BOTH


def test_a_predecessor_under_another_name_is_none() -> None:
    """Its last write is known, or arrives with the first events after a hand-over."""
    for first in ("t1", None):
        watcher = Watcher()
        watcher.observe(first)
        assert watcher.observe("t1") is None
        for _ in range(2 * LAST_WRITES):
            assert not watcher.write().after(60).observe("t1")


def test_a_rival_that_always_writes_first_is_found_too() -> None:
    watcher = Watcher()
    watcher.observe("t1")
    assert watcher.observe("t2") is None
    assert watcher.observe("t3") == BOTH


def test_a_rival_is_gone_when_it_leaves_several_of_our_writes_unanswered() -> None:
    watcher = Watcher()
    watcher.observe()
    watcher.write().observe("t1")
    watcher.write(LAST_WRITES)
    assert watcher.after(LAST_SECONDS - 1).observe() == BOTH, "it may be slow"
    assert watcher.after(1).observe() == ()
    assert watcher.write().observe("t2") == BOTH, "it is back"


def test_of_an_idle_job_a_rival_is_gone_after_an_hour() -> None:
    watcher = Watcher()
    watcher.observe()
    watcher.write().observe("t1")
    assert watcher.after(IDLE_SECONDS - 1).observe() == BOTH
    assert watcher.after(1).observe() == ()


def test_a_restarted_operator_knows_nothing_until_a_rival_had_time_to_write() -> None:
    """It keeps what the status reports."""
    watcher = Watcher()
    assert watcher.observe("t1") is None
    assert watcher.write(LAST_WRITES).after(LAST_SECONDS - 1).observe() is None
    assert watcher.after(1).observe() == ()


def test_a_first_write_after_a_long_silence_makes_it_unknown() -> None:
    """Otherwise this operator would end the report of the other one."""
    watcher = Watcher()
    watcher.observe()
    assert watcher.after(IDLE_SECONDS).observe() == ()
    assert watcher.observe("t1") is None


def test_another_job_of_the_same_name_is_another() -> None:
    watcher = Watcher()
    watcher.observe()
    assert watcher.write().observe("t1") == BOTH
    assert watcher.observe("t2", uid="uid-2") is None


@pytest.mark.parametrize(
    ("namespace", "lease", "length"),
    [("rltraining-system", "rltraining-operator", 57), ("n" * 63, "l" * 63, 128), ("n" * 44, "l" * 63, 128)],
)
def test_a_field_manager_fits_and_is_unique(namespace: str, lease: str, length: int) -> None:
    manager = status_manager(namespace, lease)
    assert len(manager) == length
    assert manager != status_manager(namespace, lease[:-1] + "x")
    assert manager.startswith(f"{PREFIX}{namespace}/")


def test_writers_of_a_status_are_operators() -> None:
    entries = [
        {"manager": OURS, "subresource": "status", "time": "t0"},
        {"manager": THEIRS, "subresource": "status"},
        {"manager": OURS + "-spec", "time": "t1"},
        {"manager": "kubectl-edit", "subresource": "status", "time": "t2"},
        {"manager": "rltraining-operator", "subresource": "status", "time": "t3"},  # an older version
        {"subresource": "status"},
    ]
    assert status_writers({"managedFields": entries}) == {OURS: "t0", THEIRS: ""}
    assert status_writers({}) == {}


async def change(server: FakeApiServer, path: str) -> None:
    """Makes a pod ready, or no longer ready, and waits until the status counts that."""
    role, pod = path.rsplit("-", 2)[1], server.objects[path]
    was = server.objects[JOB]["status"][role]["ready"]
    ready = "False" if pod.get("status", {}).get("conditions") == READY else "True"
    conditions = [{"type": "Ready", "status": ready}]
    await server.put(path, pod | {"status": {"phase": "Running", "conditions": conditions}})
    await until(lambda: server.objects[JOB]["status"][role]["ready"] != was)


READY = [{"type": "Ready", "status": "True"}]


async def test_two_workers_over_one_server_report_each_other_once_and_then_rest() -> None:
    async with FakeApiServer().serving() as server:
        await server.put(JOB, job())
        ours, theirs = Scene(server, manager=OURS), Scene(server, manager=THEIRS)
        async with ours.working(), theirs.working():
            await until(lambda: ours.is_settled() and theirs.store.job(KEY))
            for path in PODS * 5:  # one of them writes each change
                await change(server, path)
                await asyncio.sleep(0.5)  # two resyncs, since these workers do not watch jobs
            await until(lambda: conflicts(server))
            writes = server.asked("PATCH", "/status")
            await until(lambda: server.asked("GET", "/services") > 40)  # many resyncs of both
            assert server.asked("PATCH", "/status") - writes <= 1, "they agree on the report"
        (condition,) = conflicts(server)
        assert condition["status"] == "True"
        assert condition["message"] == (
            "operators system/ours and team-ops/theirs serve this job: give each release its own watchNamespaces"
        )
        told = [found for found in server.objects.values() if found.get("reason") == "OperatorConflict"]
        assert {(event["type"], event["message"]) for event in told} == {("Warning", condition["message"])}


async def test_one_worker_and_its_successor_report_nothing() -> None:
    async with FakeApiServer().serving() as server:
        await server.put(JOB, job())
        for manager in (OURS, THEIRS, OURS):
            scene = Scene(server, manager=manager)
            async with scene.working():
                await until(scene.is_settled)
                for path in PODS * 5:
                    await change(server, path)
        assert status_writers(server.objects[JOB]["metadata"]).keys() == {OURS, THEIRS}
        assert conflicts(server) == []


def conflicts(server: FakeApiServer) -> list[dict[str, str]]:
    conditions = server.objects[JOB]["status"].get("conditions", ())
    return [condition for condition in conditions if condition["type"] == "OperatorConflict"]
