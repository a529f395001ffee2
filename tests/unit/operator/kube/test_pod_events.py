"""Events of pods that do not start are read at most every few seconds, and a failure to read them stops nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fake_api_server import FakeApiServer, Fault
from rltraining_operator.kube.pod_events import FORGET_SECONDS, FRESH_SECONDS, PodEvents
from rltraining_operator.observe.pod_view import Pod

EVENTS = "/api/v1/namespaces/team/events"
MISSING = 'configmap "nothere" not found'


def pod(uid: str = "uid-1") -> Pod:
    return Pod({"metadata": {"name": "demo-learner-0", "namespace": "team", "uid": uid}})


async def put(server: FakeApiServer, name: str, uid: str, message: str) -> None:
    await server.put(
        f"{EVENTS}/{name}",
        {
            "metadata": {"name": name, "namespace": "team"},
            "involvedObject": {"kind": "Pod", "uid": uid},
            "reason": "FailedMount",
            "message": message,
            "lastTimestamp": "2026-01-01T00:00:00Z",
        },
    )


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[FakeApiServer, PodEvents]]:
    async with FakeApiServer().serving() as server:
        await put(server, "one", "uid-1", MISSING)
        await put(server, "two", "uid-2", "of another pod")
        yield server, PodEvents(server.api(), lambda: asyncio.get_running_loop().time())


async def cause(events: PodEvents, uid: str = "uid-1") -> str | None:
    found = await events.mount_failure(pod(uid))
    return found.cause if found else None


async def test_only_the_events_of_the_pod_are_read() -> None:
    async with serving() as (server, events):
        assert await cause(events) == MISSING
        assert await cause(events, "uid-3") is None
        assert server.asked("GET", EVENTS) == 2


async def test_passes_that_follow_each_other_share_an_answer() -> None:
    async with serving() as (server, events):
        for _ in range(3):
            assert await cause(events) == MISSING
        assert server.asked("GET", EVENTS) == 1
        await asyncio.sleep(FRESH_SECONDS)
        await server.drop(f"{EVENTS}/one")
        assert await cause(events) is None
        assert server.asked("GET", EVENTS) == 2


async def test_an_operator_without_the_right_goes_on_and_does_not_ask_at_each_pass() -> None:
    async with serving() as (server, events):
        server.faults.append(Fault("GET", "/events", status=403, times=100))
        for _ in range(3):
            assert await cause(events) is None
        assert server.asked("GET", EVENTS) == 1


async def test_what_was_read_last_stands_while_the_server_is_away() -> None:
    async with serving() as (server, events):
        assert await cause(events) == MISSING
        await asyncio.sleep(FRESH_SECONDS)
        server.faults.append(Fault("GET", "/events", status=503, times=1))
        assert await cause(events) == MISSING
        assert server.asked("GET", EVENTS) == 2


async def test_pods_that_are_gone_are_forgotten() -> None:
    async with serving() as (_, events):
        await cause(events)
        await asyncio.sleep(FORGET_SECONDS + 1)
        await cause(events, "uid-2")
        assert list(events._answers) == ["uid-2"]
