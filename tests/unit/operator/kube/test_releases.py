"""Of several releases that serve a namespace, only the oldest runs its jobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from fake_api_server import FakeApiServer, Fault, until
from rltraining_operator.cluster import Key
from rltraining_operator.kube import releases as releases_module
from rltraining_operator.kube.config import LeaderElectionConfig
from rltraining_operator.kube.health import Health
from rltraining_operator.kube.lease import Lease
from rltraining_operator.kube.releases import Releases
from rltraining_operator.kube.rivals import status_manager
from test_kubernetes_cluster import JOB, Scene, job
from test_rivals import PODS, change, conflicts

KEY = Key("default", "demo")
CONFIG = LeaderElectionConfig(lease_seconds=1.0, renew_seconds=0.7, retry_seconds=0.1)
SENTENCE = (
    "operators system/first and system/second serve this job, and only system/first, the oldest of them, runs it: "
    "give each release its own watchNamespaces"
)
OLD, NEW = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


class Release:
    """One release: its lease, and the operator that works while it leads."""

    def __init__(self, server: FakeApiServer, name: str, namespaces: tuple[str, ...] = ()) -> None:
        self.name, self.path = name, f"/apis/coordination.k8s.io/v1/namespaces/system/leases/{name}"
        config = CONFIG.model_copy(update={"lease_name": name})
        api = server.api()
        self.lease = Lease(api, config, namespace="system", identity=f"{name}-pod", serves=namespaces)
        manager = status_manager("system", name)
        self.releases = Releases(
            api,
            self.lease,
            manager,
            namespaces=namespaces,
            lease_seconds=1.0,
            retry_seconds=0.1,
            changed=lambda: self.scene.engine.resync(),
        )
        self.scene = Scene(server, manager=manager, releases=self.releases)
        self.health = Health(api, [self.scene.watch], lambda: self.releases.refusal)

    @asynccontextmanager
    async def working(self) -> AsyncIterator[Release]:
        await self.lease.acquire()
        parts = [asyncio.create_task(part) for part in (self.lease.hold(), self.releases.run())]
        try:
            async with self.scene.working():
                yield self
        finally:
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)


@asynccontextmanager
async def scene(**created: str) -> AsyncIterator[FakeApiServer]:
    """A server with a job, and with the Leases of releases that were created at these times."""
    async with FakeApiServer().serving() as server:
        await server.put(JOB, job())
        for name, when in created.items():
            metadata = {"name": name, "namespace": "system", "creationTimestamp": when}
            path = f"/apis/coordination.k8s.io/v1/namespaces/system/leases/{name}"
            await server.put(path, {"metadata": metadata, "spec": {}})
        yield server


async def test_a_younger_release_runs_no_job_reports_it_and_takes_over_when_the_older_is_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with scene(first=OLD, second=NEW) as server, AsyncExitStack() as stack:
        async with Release(server, "first").working() as first:
            await until(first.scene.is_settled)
            second = await stack.enter_async_context(Release(server, "second").working())
            await until(lambda: conflicts(server))
            (condition,) = conflicts(server)
            assert (condition["status"], condition["message"]) == ("True", SENTENCE)
            await until(
                lambda: any(each.get("reason") == "OperatorConflict" for each in server.objects.values())
            )
            assert "the older release system/first also serves all namespaces" in second.health.unready()
            assert first.health.unready() == ""
            # The older one keeps working, and neither overwrites the other.
            for path in PODS * 3:
                await change(server, path)
            writes = server.asked("PATCH", "/status")
            await asyncio.sleep(1.0)  # five resyncs of both
            assert server.asked("PATCH", "/status") == writes
            assert conflicts(server)[0]["message"] == SENTENCE
        # The older one is gone.
        await until(lambda: second.health.unready() == "")
        await change(server, PODS[0])
        await until(lambda: conflicts(server)[0]["status"] == "False")
    assert "reconciles no job there" in caplog.text


@pytest.mark.parametrize("gone", ["first", "second"])
async def test_the_condition_is_false_soon_after_an_uninstallation_that_takes_the_right_to_read_the_lease(
    gone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`helm uninstall` deletes the Role with which others read the Lease. Nothing deletes the Lease."""
    monkeypatch.setattr(releases_module, "OTHERS_SECONDS", 0.1)
    async with scene(first=OLD, second=NEW) as server, AsyncExitStack() as stack:
        ends: dict[str, AsyncExitStack] = {}
        releases: dict[str, Release] = {}
        for name in ("first", "second"):
            ends[name] = await stack.enter_async_context(AsyncExitStack())
            releases[name] = await ends[name].enter_async_context(Release(server, name).working())
            await until(releases["first"].scene.is_settled)
        await until(lambda: conflicts(server))
        await change(server, PODS[0])
        await ends[gone].aclose()
        server.faults.append(Fault("GET", releases[gone].path, status=403, times=10**6))
        (left,) = (release for name, release in releases.items() if name != gone)
        await until(lambda: left.health.unready() == "", seconds=20.0)
        await until(lambda: conflicts(server)[0]["status"] == "False", seconds=20.0)
        await change(server, PODS[1])


async def test_a_release_that_writes_on_without_a_readable_lease_is_left_to_its_writes() -> None:
    async with scene(first=OLD, second=NEW) as server:
        ours, theirs = Release(server, "second"), Release(server, "first")
        await ours.lease.acquire()
        await theirs.lease.acquire()
        manager = status_manager("system", "first")
        assert (await ours.releases.serving("default", {manager: "t1"})).oldest == "system/first"
        server.faults.append(Fault("GET", theirs.path, status=403, times=10**6))
        looks = asyncio.create_task(ours.releases.run())
        try:
            # A release that is being uninstalled may still write.
            serving = await ours.releases.serving("default", {manager: "t2"})
            assert (serving.oldest, serving.readable) == ("system/first", {manager})
            await until(lambda: not ours.releases.refusal, seconds=20.0)
            serving = await ours.releases.serving("default", {manager: "t2"})
            assert (serving.oldest, serving.readable) == ("", {manager})
        finally:
            looks.cancel()
        await asyncio.sleep(0.2)
        # A release that has no Lease for others any more, and works, is found by its writes.
        serving = await ours.releases.serving("default", {manager: "t3"})
        assert (serving.oldest, serving.readable) == ("", frozenset())


async def test_the_older_one_gets_its_jobs_back_after_a_restart() -> None:
    async with scene(first=OLD, second=NEW) as server, Release(server, "second").working() as second:
        await until(second.scene.is_settled)
        async with Release(server, "first").working() as first:
            await until(lambda: second.health.unready())
            await change(server, PODS[0])
            assert first.health.unready() == ""
            assert conflicts(server)[0]["message"] == SENTENCE


@pytest.mark.parametrize(
    ("first", "second", "refused"),
    [
        ((), (), True),
        ((), ("default",), True),
        (("default", "b"), (), True),
        (("default",), ("a", "default"), True),
        (("b",), ("default",), False),
        (("b",), (), False),
    ],
)
async def test_only_shared_namespaces_count(
    first: tuple[str, ...], second: tuple[str, ...], refused: bool
) -> None:
    """An older release that no longer serves a namespace has still written the status of its jobs."""
    async with scene(first=OLD, second=NEW) as server:
        ours, theirs = Release(server, "second", second), Release(server, "first", first)
        await ours.lease.acquire()
        await theirs.lease.acquire()
        serving = await ours.releases.serving("default", {status_manager("system", "first"): "t1"})
        assert serving.oldest == ("system/first" if refused else "")
        assert bool(serving.others) == refused


@pytest.mark.parametrize("status", [403, 404])
async def test_a_release_whose_lease_cannot_be_read_stops_none(status: int) -> None:
    async with scene(first=OLD, second=NEW) as server:
        ours, theirs = Release(server, "second"), Release(server, "first")
        await ours.lease.acquire()
        await theirs.lease.acquire()
        server.faults.append(Fault("GET", theirs.path, status=status, times=100))
        serving = await ours.releases.serving("default", {status_manager("system", "first"): "t1"})
        assert (serving.oldest, serving.readable) == ("", frozenset())


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({}, True),
        ({"renewTime": "2026-01-01T00:00:00.000000Z"}, False),  # it ended long ago
        ({"holderIdentity": ""}, True),  # it may be about to restart
    ],
)
async def test_at_first_sight_a_lease_counts_if_it_was_renewed_lately(
    changes: dict[str, Any], refused: bool
) -> None:
    async with scene(first=OLD, second=NEW) as server:
        ours, theirs = Release(server, "second"), Release(server, "first")
        await ours.lease.acquire()
        await theirs.lease.acquire()
        lease = server.objects[theirs.path]
        await server.put(theirs.path, lease | {"spec": lease["spec"] | changes})
        serving = await ours.releases.serving("default", {status_manager("system", "first"): "t1"})
        assert bool(serving.oldest) == refused


async def test_a_lease_of_an_older_version_of_the_operator_stops_none() -> None:
    async with scene(first=OLD, second=NEW) as server:
        ours = Release(server, "second")
        await ours.lease.acquire()
        serving = await ours.releases.serving("default", {status_manager("system", "first"): "t1"})
        assert (serving.oldest, serving.readable) == ("", frozenset())
