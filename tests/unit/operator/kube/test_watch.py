"""The watch of pods against an API server that misbehaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from fake_api_server import FakeApiServer, Fault, until
from rltraining_api.names import pod_labels
from rltraining_operator.cluster import Key
from rltraining_operator.kube.cluster import SELECTOR
from rltraining_operator.kube.metrics import StateCollector
from rltraining_operator.kube.store import Store
from rltraining_operator.kube.watch import Watch

PODS = "/api/v1/namespaces/default/pods"
KEY = Key("default", "demo")


def pod(index: int, **status: Any) -> dict[str, Any]:
    metadata = {
        "name": f"demo-sampler-{index}",
        "namespace": "default",
        "labels": pod_labels("demo", "sampler", index),
    }
    return {"metadata": metadata, "spec": {"large": "x" * 1000}, "status": status}


class Scene:
    """A server, a store that follows the server, and the marked keys."""

    def __init__(self, server: FakeApiServer) -> None:
        self.server, self.store, self.marked = server, Store(), list[Key]()
        self.watch = Watch(server.api(), self.store, self.marked.append)

    def names(self) -> list[str]:
        return sorted(child["metadata"]["name"] for child in self.store.children(KEY))

    async def put(self, index: int, **status: Any) -> None:
        await self.server.put(f"{PODS}/demo-sampler-{index}", pod(index, **status))


@asynccontextmanager
async def watching(*faults: Fault) -> AsyncIterator[Scene]:
    async with FakeApiServer().serving() as server:
        scene = Scene(server)
        server.faults += faults
        for index in range(2):
            await scene.put(index)
        task = asyncio.create_task(scene.watch.run())
        try:
            yield scene
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_what_is_there_comes_then_and_goes_is_known() -> None:
    async with watching() as scene:
        await until(lambda: scene.names() == ["demo-sampler-0", "demo-sampler-1"])
        await scene.put(2)
        await until(lambda: len(scene.names()) == 3)
        await scene.put(2, phase="Running")
        await until(
            lambda: scene.store.child(KEY, "Pod", "demo-sampler-2")["status"].get("phase") == "Running"
        )
        await scene.server.drop(f"{PODS}/demo-sampler-0")
        await until(lambda: scene.names() == ["demo-sampler-1", "demo-sampler-2"])
        assert set(scene.marked) == {KEY}
        assert "spec" not in scene.store.child(KEY, "Pod", "demo-sampler-2"), (
            "the cache holds fields that are never read"
        )


FAULTS = {
    "the list fails": [Fault("GET", "/pods", status=500, times=2)],
    "the list asks for patience": [Fault("GET", "/pods", status=429, headers={"Retry-After": "0"})],
    "the list never answers": [Fault("GET", "/pods", seconds=5.0)],
    "the list breaks off": [Fault("GET", "/pods", cut=True)],
    "the watch falls silent": [Fault("WATCH", "/pods", silent=True)],
    "the watch breaks off": [Fault("WATCH", "/pods", cut=True, times=3)],
    "the watch fails": [Fault("WATCH", "/pods", status=503, times=5)],
}


@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
async def test_heals_when(faults: list[Fault]) -> None:
    async with watching(*[replace(fault) for fault in faults]) as scene:
        await until(lambda: len(scene.names()) == 2)
        await scene.put(7)
        await until(lambda: "demo-sampler-7" in scene.names())


async def test_a_lost_history_is_listed_anew_and_what_went_meanwhile_is_missed_by_nobody() -> None:
    async with watching(Fault("WATCH", "/pods", silent=True)) as scene:
        await until(lambda: len(scene.names()) == 2)
        await scene.server.drop(f"{PODS}/demo-sampler-1", tell=False)
        scene.server.compacted = 10_000  # the server now answers requests for the history with 410
        scene.marked.clear()
        await until(lambda: scene.names() == ["demo-sampler-0"])
        assert scene.marked == [KEY], "the job of the lost pod is looked at"
        scene.server.compacted = 0
        await scene.put(5)
        await until(lambda: "demo-sampler-5" in scene.names())


async def test_a_watch_that_only_fails_ages_in_the_metric_though_it_gives_signs() -> None:
    async with watching(Fault("WATCH", "/pods", status=503, times=1000)) as scene:
        collector = StateCollector(scene.store, [scene.watch], lambda: 0)

        def age() -> float:
            families = {family.name: family for family in collector.collect()}
            return float(families["rltraining_watch_age_seconds"].samples[0].value)

        began = scene.watch.last_event
        await until(lambda: len(scene.names()) == 2 and scene.watch.last_sign > began + 0.2)
        assert age() > 0.2
        scene.server.faults.clear()
        await scene.put(7)
        await until(lambda: "demo-sampler-7" in scene.names())  # in a list, or as an event
        await scene.put(8)
        await until(lambda: "demo-sampler-8" in scene.names() and scene.watch.last_event > began)


async def test_a_long_list_comes_in_pages() -> None:
    async with FakeApiServer().serving() as server:
        scene = Scene(server)
        for index in range(7):
            await scene.put(index)
        api = server.api()
        pages = [page async for page in api.pages("/api/v1/pods", SELECTOR, limit=3)]
        assert [len(page["items"]) for page in pages] == [3, 3, 1]
