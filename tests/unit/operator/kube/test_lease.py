"""Leader election: never two leaders, and never a long time without one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from fake_api_server import FakeApiServer, Fault, until
from rltraining_operator.kube.config import LeaderElectionConfig
from rltraining_operator.kube.lease import Lease, Sighting, judge

CONFIG = LeaderElectionConfig(lease_seconds=15, renew_seconds=10, retry_seconds=2)
PATH = "/leases/"

CASES = {
    "no lease yet": (None, "take"),
    "released": (Sighting("", "1", 99.0), "take"),
    "ours": (Sighting("me", "1", 99.0), "renew"),
    "another's and fresh": (Sighting("you", "1", 95.0), "wait"),
    "another's and just not over": (Sighting("you", "1", 90.0), "wait"),
    "another's and over": (Sighting("you", "1", 89.9), "take"),
    "ours and over": (Sighting("me", "1", 10.0), "take"),
}


@pytest.mark.parametrize(("seen", "choice"), CASES.values(), ids=CASES)
def test_what_a_replica_may_do(seen: Sighting | None, choice: str) -> None:
    assert judge("me", seen, 100.0, lease_seconds=10.0) == choice


class Replica:
    def __init__(self, server: FakeApiServer, name: str, record: list[str]) -> None:
        self.name, self._record = name, record
        self.lease = Lease(server.api(request_seconds=5.0), CONFIG, namespace="ops", identity=name)
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        await self.lease.acquire()
        self._record.append(f"{self.name} begins")
        try:
            await self.lease.hold()
        finally:
            self._record.append(f"{self.name} ends")

    async def kill(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@asynccontextmanager
async def replicas() -> AsyncIterator[tuple[FakeApiServer, Replica, Replica, list[str]]]:
    async with FakeApiServer().serving() as server:
        record: list[str] = []
        first = Replica(server, "first", record)
        await until(lambda: record == ["first begins"])
        second = Replica(server, "second", record)
        try:
            yield server, first, second, record
        finally:
            await first.kill()
            await second.kill()


async def test_one_leads_and_a_killed_one_is_followed() -> None:
    async with replicas() as (_, first, _, record):
        await asyncio.sleep(CONFIG.lease_seconds * 2)
        assert record == ["first begins"], "no other replica leads while the first one renews"
        await first.kill()
        killed = time.monotonic()
        await until(lambda: record[-1] == "second begins")
        least, most = CONFIG.lease_seconds - CONFIG.retry_seconds, CONFIG.lease_seconds + CONFIG.retry_seconds
        assert least <= time.monotonic() - killed <= most + 1.0


@pytest.mark.parametrize("renews", [False, True], ids=["idle", "during a renewal"])
async def test_one_that_is_asked_to_end_hands_over_at_the_next_look(renews: bool) -> None:
    async with replicas() as (server, first, _, record):
        if renews:
            renewal = Fault("PUT", PATH, cut=True)  # the write takes effect, and the response is lost
            server.faults.append(renewal)
            await until(lambda: renewal.times == 0)
        await first.kill()
        await first.lease.release()
        released = time.monotonic()
        await until(lambda: record[-1] == "second begins")
        assert time.monotonic() - released <= CONFIG.retry_seconds + 1.0


@pytest.mark.parametrize(
    "fault",
    [Fault("PUT", PATH, status=500), Fault("PUT", PATH, seconds=50.0), Fault("GET", PATH, seconds=50.0)],
    ids=["errors", "no answer to a renewal", "no answer at all"],
)
async def test_a_leader_that_cannot_renew_ends_before_another_begins(fault: Fault) -> None:
    async with replicas() as (server, _, _, record):
        outage = replace(fault, times=1000)
        server.faults.append(outage)
        await until(lambda: "first ends" in record)
        outage.times = 0
        await until(lambda: len(record) == 3)
        assert record[:2] == ["first begins", "first ends"]


async def test_of_many_that_begin_together_one_leads() -> None:
    async with FakeApiServer().serving() as server:
        record: list[str] = []
        crowd = [Replica(server, f"r{number}", record) for number in range(8)]
        await asyncio.sleep(CONFIG.retry_seconds * 4)
        assert len(record) == 1, record
        await asyncio.gather(*(replica.kill() for replica in crowd))
