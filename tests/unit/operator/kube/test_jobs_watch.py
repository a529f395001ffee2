"""The watch of jobs: whatever ends kopf, the operator receives jobs again."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import kopf
import pytest
from fake_api_server import FakeApiServer, Fault, until
from kubernetes.config import kube_config
from rltraining_api.names import API_VERSION, KIND, PLURAL
from rltraining_operator.cluster import Key
from rltraining_operator.kube import jobs_watch
from rltraining_operator.kube.handlers import build_settings
from rltraining_operator.kube.jobs_watch import JobsWatch
from rltraining_operator.kube.store import Store

JOBS = f"/apis/{API_VERSION}/namespaces/default/{PLURAL}"
GRACE_SECONDS = 25.0
"""Limit for the end of the watch: the kubelet kills after 30 s."""


class Scene:
    """A server, a store that follows the server, the marked jobs, and the threads that marked them."""

    def __init__(self, server: FakeApiServer, kubeconfig: Path) -> None:
        self.server, self.kubeconfig = server, kubeconfig
        self.store, self.marked, self.threads = Store(), list[Key](), set[int]()
        self.missed = 0
        self.watch = JobsWatch(server.api(), self.store, self._mark, self._miss)
        self.task = asyncio.create_task(self.watch.run())

    def _mark(self, key: Key) -> None:
        self.marked.append(key)
        self.threads.add(threading.get_ident())

    def _miss(self) -> None:
        self.missed += 1

    def names(self) -> set[str]:
        return {key.name for key in self.store.jobs()}

    async def put(self, name: str, **status: Any) -> None:
        metadata = {"name": name, "namespace": "default", "managedFields": [{"manager": "kubectl"}]}
        job = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": {}, "status": status}
        await self.server.put(f"{JOBS}/{name}", job)

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@asynccontextmanager
async def watching(kubeconfig: Path, *faults: Fault) -> AsyncIterator[Scene]:
    async with FakeApiServer().serving() as server:
        server.write_kubeconfig(kubeconfig)
        server.faults += faults
        scene = Scene(server, kubeconfig)
        await scene.put("first")
        try:
            yield scene
        finally:
            await scene.end()


@pytest.fixture
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, real_time: None) -> Path:
    path = tmp_path / "kubeconfig"
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(path))
    monkeypatch.setattr(jobs_watch, "BACKOFF_SECONDS", 0.001)
    monkeypatch.setattr(jobs_watch, "build_settings", impatient_settings)
    return path


def impatient_settings() -> kopf.OperatorSettings:
    """The operator's settings of kopf, with short pauses after errors."""
    settings = build_settings()
    settings.networking.error_backoffs = [0.001] * 1000
    settings.watching.reconnect_backoff = 0.001
    return settings


async def test_what_is_there_comes_changes_and_goes_is_known_in_the_main_thread(kubeconfig: Path) -> None:
    async with watching(kubeconfig) as scene:
        await until(lambda: scene.names() == {"first"})
        await scene.put("second")
        await until(lambda: scene.names() == {"first", "second"})
        await scene.put("second", phase="Running")
        key = Key("default", "second")
        await until(lambda: (scene.store.job(key) or {})["status"].get("phase") == "Running")
        await scene.server.drop(f"{JOBS}/first")
        await until(lambda: scene.names() == {"second"})
        assert {found.name for found in scene.marked} == {"first", "second"}
        assert scene.threads == {threading.get_ident()}, "the store belongs to one event loop"
        assert scene.missed == 0
        assert "managedFields" not in (scene.store.job(key) or {})["metadata"]


JOB_LIST = f"/apis/{API_VERSION}/{PLURAL}"
FAULTS = {
    "a watch is refused as unauthorized, again and again": [Fault("WATCH", PLURAL, status=401, times=5)],
    "a watch is forbidden for a while": [Fault("WATCH", PLURAL, status=403)],
    "a watch says error 500": [Fault("WATCH", PLURAL, error=500)],
    "a watch breaks off": [Fault("WATCH", PLURAL, cut=True, times=3)],
    "the list is refused as unauthorized": [Fault("GET", JOB_LIST, status=401)],
    "the list is forbidden for a while": [Fault("GET", JOB_LIST, status=403)],
    "the list breaks off": [Fault("GET", JOB_LIST, cut=True)],
    "the resource is gone and comes back": [
        Fault("WATCH", PLURAL, status=404),
        Fault("GET", f"/apis/{API_VERSION}", status=404, times=5),
    ],
    "nothing is authorized": [Fault("GET", "/", status=401, times=4)],
}


@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
async def test_heals_when(faults: list[Fault], kubeconfig: Path) -> None:
    async with watching(kubeconfig, *[replace(fault) for fault in faults]) as scene:
        await until(lambda: all(fault.times == 0 for fault in scene.server.faults))
        await until(lambda: "first" in scene.names())
        await scene.put("second")
        await until(lambda: "second" in scene.names())
        assert not scene.task.done()


async def test_a_token_that_was_renewed_is_read_and_kopf_goes_on(kubeconfig: Path) -> None:
    async with watching(kubeconfig) as scene:
        server = scene.server
        await until(lambda: server.tokens == ["Bearer one"])
        server.write_kubeconfig(kubeconfig, token="two")
        server.faults.append(Fault("WATCH", PLURAL, status=401))
        server.hang_up(PLURAL)
        await until(lambda: server.tokens == ["Bearer one", "Bearer two"])
        await scene.put("second")
        await until(lambda: "second" in scene.names())
        assert scene.missed == 0, "kopf has ended, though it could log in again"


async def test_when_kopf_was_away_a_resync_is_asked_for(kubeconfig: Path) -> None:
    async with watching(kubeconfig) as scene:
        await until(lambda: scene.names() == {"first"})
        await until(lambda: scene.server.asked("WATCH", PLURAL) == 1)  # after the list
        scene.server.faults.append(Fault("WATCH", PLURAL, error=500))
        scene.server.hang_up(PLURAL)
        await until(lambda: scene.missed == 1)
        await until(lambda: scene.server.asked("WATCH", PLURAL) == 3)
        assert scene.missed == 1, "once for each end"


async def test_each_end_of_kopf_is_logged_in_one_line_and_the_pause_grows(
    kubeconfig: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(jobs_watch, "BACKOFF_MAX_SECONDS", 0.003)
    faults = Fault("WATCH", PLURAL, status=401), Fault("WATCH", PLURAL, error=500, times=3)
    with caplog.at_level(logging.ERROR):
        async with watching(kubeconfig, *faults) as scene:
            await until(lambda: scene.server.asked("WATCH", PLURAL) == 5)
    assert "the watch of jobs has ended and restarts in 0.0 s: " in caplog.messages[0]
    assert "401" in caplog.messages[0]
    pauses = [record.args[0] for record in caplog.records if isinstance(record.args, tuple)]
    assert pauses == [0.001, 0.002, 0.003, 0.003]


async def test_asked_to_end_it_leaves_nothing_behind(
    kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs_watch, "END_SECONDS", 600.0)
    async with watching(kubeconfig) as scene:
        await until(lambda: scene.names() == {"first"})
        await scene.end()
        await until(lambda: all(thread.name != "kopf" for thread in threading.enumerate()))


async def test_a_kopf_that_hangs_holds_up_the_end_for_a_moment_only(
    kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, resumes = threading.Event(), threading.Event()

    def credentials_plugin(**_: Any) -> None:
        hangs.set()
        resumes.wait()

    monkeypatch.setattr(kopf, "login_via_client", credentials_plugin)
    monkeypatch.setattr(jobs_watch, "END_SECONDS", 0.1)
    async with watching(kubeconfig) as scene:
        await until(hangs.is_set)
        try:
            async with asyncio.timeout(GRACE_SECONDS):
                await scene.end()
        finally:
            resumes.set()
        await until(lambda: all(thread.name != "kopf" for thread in threading.enumerate()))
