"""A real operator process, with the chart's limits, keeps serving other jobs while malicious pods and clients attack
it."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from operator_process import Operator, operating
from rltraining_api.contract import HTTP_PORT
from rltraining_operator.kube.events import BURST
from rltraining_operator.kube.http_server import CONNECTIONS_MAX
from rltraining_operator.status.bounds import OBJECT_BYTES_MAX

GIBIBYTE = 1 << 30
"""The memory limit of the chart."""
RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
BOMBS = {
    "conditions": b'{"conditions":[' + b",".join([b"{}"] * 340_000) + b"]}",
    "warnings": b'{"warnings":[' + b",".join([b"0"] * 520_000) + b"]}",
    "text": b'{"warnings":[{"reason":"A","message":"' + b"x" * 1_000_000 + b'"}]}',
    "nesting": b"[" * 1_000_000,
    "angles": json.dumps(
        {
            "conditions": [
                {"type": f"T{i}", "status": "True", "reason": "R", "message": "<" * 4096} for i in range(23)
            ],
            "warnings": [{"reason": f"R{i}", "message": "<" * 4096} for i in range(32)],
        }
    ).encode(),
}
"""Answers of a learner, by the name of its job."""


@pytest.fixture
def addresses() -> Iterator[str]:
    """Yields addresses of pods, which are on this machine and used by no other test."""
    net = f"127.{os.getpid() >> 8 & 127 | 64}.{os.getpid() & 255}"
    return (f"{net}.{number}" for number in count(1))


class Learner:
    """Answers every request with the result of `body`."""

    def __init__(self, body: Callable[[], bytes]) -> None:
        self._body = body
        self.asked = 0

    @asynccontextmanager
    async def at(self, address: str) -> AsyncIterator[Learner]:
        async with await asyncio.start_server(self._serve, address, HTTP_PORT):
            yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            self.asked += 1
            writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + self._body())
            await writer.drain()
        except ConnectionError:  # the operator has read enough
            pass
        finally:
            writer.close()


async def run_job(operator: Operator, name: str, address: str) -> None:
    """Submits a job and sets this address for its learner."""
    await operator.submit(name)
    await operator.tell(f"{name}-learner-0", RUNNING, ready=True, address=address)
    await operator.tell(f"{name}-sampler-0", RUNNING, ready=True)


def stored_bytes(found: Any) -> int:
    """Returns the size of an object in etcd, in bytes: JSON as Go writes it."""
    text = json.dumps(found, separators=(",", ":"), ensure_ascii=False)
    return len(text.encode()) + 5 * sum(text.count(c) for c in "<>&")


async def probe(operator: Operator) -> float:
    """Seconds until /healthz has answered; fails after five, as the chart's probe does."""
    began = asyncio.get_running_loop().time()
    async with asyncio.timeout(5.0):
        reader, writer = await asyncio.open_connection("127.0.0.1", operator.port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: operator\r\n\r\n")
        answer = await reader.read()
        writer.close()
    assert answer.startswith(b"HTTP/1.1 200 ")
    return asyncio.get_running_loop().time() - began


def test_learners_that_answer_a_megabyte_do_not_keep_the_operator_from_other_jobs(
    tmp_path: Path, addresses: Iterator[str]
) -> None:
    steps = count(1)
    honest = Learner(
        lambda: json.dumps({"state": "Training", "progress": {"environmentSteps": next(steps)}}).encode()
    )

    def trained() -> int:
        return int((operator.status("honest").get("progress") or {}).get("environmentSteps", 0))

    async def scenario() -> None:
        nonlocal operator
        async with AsyncExitStack() as stack:
            operator = await stack.enter_async_context(
                operating(tmp_path, limits={resource.RLIMIT_DATA: GIBIBYTE}, progressSeconds=1)
            )
            liars = []
            for name, body in BOMBS.items():
                address = next(addresses)
                liars.append(await stack.enter_async_context(Learner(lambda body=body: body).at(address)))
                await run_job(operator, name, address)
            address = next(addresses)
            await stack.enter_async_context(honest.at(address))
            await run_job(operator, "honest", address)

            said = [f"default/{name}-learner-0: its report cannot be read" for name in BOMBS]
            await operator.until(lambda: all(words in operator.log() for words in said))
            asked, so_far = [liar.asked for liar in liars], trained()
            await operator.until(lambda: trained() > so_far + 2)
            await probe(operator)

            further = [liar.asked - before for liar, before in zip(liars, asked, strict=True)]
            assert max(further) <= 1, "who misreports is asked less often"
            assert len(operator.log()) < 50_000
            assert operator.peak_megabytes() < 256
            for name in BOMBS:
                assert stored_bytes(operator.job(name)) < OBJECT_BYTES_MAX

    operator: Operator
    asyncio.run(scenario())


def test_what_a_learner_says_anew_each_time_neither_fills_its_object_nor_etcd_with_events(
    tmp_path: Path, addresses: Iterator[str]
) -> None:
    """The whole answer is within the length that the operator reads."""
    numbers = count()

    def body() -> bytes:
        number = next(numbers)
        said = {
            "state": "Training",
            "progress": {"environmentSteps": number},
            "conditions": [
                {"type": f"T{number}-{i}", "status": "True", "reason": "R", "message": "<" * 1000}
                for i in range(23)
            ],
            "warnings": [{"reason": f"R{number}x{i}", "message": "<" * 1000} for i in range(32)],
        }
        return json.dumps(said).encode()

    async def scenario() -> None:
        address, learner = next(addresses), Learner(body)
        async with learner.at(address), operating(tmp_path, progressSeconds=0.1) as operator:
            await run_job(operator, "loud", address)
            await operator.until(lambda: learner.asked >= 4)
            await operator.until(lambda: len(operator.status("loud").get("warnings", ())) >= 8)
            events = [found for path, found in operator.server.objects.items() if "/events/" in path]
            assert sum(event["count"] for event in events) <= BURST
            assert {"PodsCreated", "Running"} <= {event["reason"] for event in events}
            assert stored_bytes(operator.job("loud")) < OBJECT_BYTES_MAX
            assert all(stored_bytes(event) < 8192 for event in events)

    asyncio.run(scenario())


def test_4200_half_requests_neither_exhaust_descriptors_nor_make_a_probe_fail(tmp_path: Path) -> None:
    half_requests, descriptors = 4200, 4096
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= most < half_requests + 500:
        pytest.skip(f"this process may have {most} descriptors only")
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    async def scenario() -> None:
        with ExitStack() as held:
            async with operating(tmp_path, limits={resource.RLIMIT_NOFILE: descriptors}) as operator:
                worst = 0.0
                for number in range(half_requests):
                    client = held.enter_context(
                        socket.create_connection(("127.0.0.1", operator.port), timeout=5)
                    )
                    client.sendall(b"GET /healthz HTTP/1.1\r\nX: ")
                    if number % 60 == 0:
                        worst = max(worst, await probe(operator))
                worst = max(worst, await probe(operator))
                assert worst < 5.0
                assert operator.descriptors() < CONNECTIONS_MAX + 64
                await operator.submit("after")  # the API server is reached as before

    asyncio.run(scenario())
