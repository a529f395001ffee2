"""Requests: what each answer becomes, and how fast they may come."""

from __future__ import annotations

import asyncio
import time

import pytest
from fake_api_server import FakeApiServer, Fault
from rltraining_operator.errors import (
    ClusterError,
    ConflictError,
    NotFoundError,
    RejectedError,
    UnavailableError,
)
from rltraining_operator.kube.api import Bucket, Gone, resource_of

POD = "/api/v1/namespaces/default/pods/p"
ANSWERS = [
    (400, "bad", RejectedError),
    (401, "who are you", UnavailableError),
    (403, "forbidden: User cannot", RejectedError),
    (403, "unable to create new content in namespace x because it is being terminated", NotFoundError),
    (403, "exceeded quota: small, requested: pods=1", RejectedError),
    (403, "cannot set blockOwnerDeletion, cannot find RESTMapping", UnavailableError),
    (404, "no", NotFoundError),
    (409, "already exists", ConflictError),
    (410, "too old", Gone),
    (422, "spec is immutable", RejectedError),
    (429, "later", UnavailableError),
    (500, "oops", UnavailableError),
    (503, "away", UnavailableError),
]


@pytest.mark.parametrize(("status", "message", "kind"), ANSWERS, ids=lambda value: str(value)[:24])
def test_each_answer_has_its_error(status: int, message: str, kind: type[ClusterError]) -> None:
    async def scenario() -> None:
        async with FakeApiServer().serving() as server:
            server.faults.append(Fault("GET", POD, status=status, message=message))
            api = server.api()
            with pytest.raises(kind, match=message.split(":")[0]):
                await api.get(POD)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "fault", [Fault("GET", POD, seconds=5), Fault("GET", POD, cut=True, times=9)], ids=["slow", "cut"]
)
def test_no_answer_is_an_error_too(fault: Fault) -> None:
    async def scenario() -> None:
        async with FakeApiServer().serving() as server:
            server.faults.append(Fault(**vars(fault)))
            api = server.api(request_seconds=0.1)
            with pytest.raises(UnavailableError, match=POD):
                await api.get(POD)

    asyncio.run(scenario())


def test_no_server_is_an_error_too() -> None:
    async def scenario() -> None:
        async with FakeApiServer().serving() as server:
            api = server.api()
        with pytest.raises(UnavailableError, match=POD):
            await api.get(POD)
        await api.close()

    asyncio.run(scenario())


def test_the_bucket_lets_a_burst_through_and_then_a_steady_stream() -> None:
    async def scenario() -> float:
        bucket = Bucket(qps=200.0, burst=20)
        await asyncio.gather(*(bucket.take() for _ in range(60)))
        return time.monotonic()

    began = time.monotonic()
    seconds = asyncio.run(scenario()) - began
    assert seconds >= 0.19, f"60 requests in {seconds:.3f} s: 20 at once and 40 at 200 a second take 0.2 s"


def test_a_server_that_asks_for_patience_gets_it_from_everyone() -> None:
    async def scenario() -> None:
        async with FakeApiServer().serving() as server:
            api = server.api(qps=1000.0, burst=1000)
            server.faults.append(Fault("GET", POD, status=429, headers={"Retry-After": "1"}))
            with pytest.raises(UnavailableError):
                await api.get(POD)
            began = time.monotonic()
            with pytest.raises(NotFoundError):
                await api.get("/api/v1/namespaces/default/pods/other")
            assert time.monotonic() - began >= 0.9

    asyncio.run(scenario())


PATHS = [
    ("/api/v1/pods", "pods"),
    ("/api/v1/namespaces/a/pods", "pods"),
    ("/api/v1/namespaces/a/pods/p", "pods"),
    ("/apis/rltraining.dev/v1alpha1/namespaces/a/rltrainingjobs/j/status", "rltrainingjobs/status"),
    ("/apis/coordination.k8s.io/v1/namespaces/a/leases/l", "leases"),
]


@pytest.mark.parametrize(("path", "resource"), PATHS)
def test_metrics_know_resources_not_names(path: str, resource: str) -> None:
    assert resource_of(path) == resource
