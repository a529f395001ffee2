"""Requests: the result of each response, and the rate limit."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

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
async def test_each_answer_has_its_error(status: int, message: str, kind: type[ClusterError]) -> None:
    async with FakeApiServer().serving() as server:
        server.faults.append(Fault("GET", POD, status=status, message=message))
        api = server.api()
        with pytest.raises(kind, match=message.split(":")[0]):
            await api.get(POD)


@pytest.mark.parametrize(
    "fault", [Fault("GET", POD, seconds=5), Fault("GET", POD, cut=True, times=9)], ids=["slow", "cut"]
)
async def test_no_answer_is_an_error_too(fault: Fault) -> None:
    async with FakeApiServer().serving() as server:
        server.faults.append(replace(fault))
        with pytest.raises(UnavailableError, match=POD):
            await server.api().get(POD)


async def test_no_server_is_an_error_too() -> None:
    async with FakeApiServer().serving() as server:
        api = server.api()
    with pytest.raises(UnavailableError, match=POD):
        await api.get(POD)
    await api.close()


async def test_the_bucket_lets_a_burst_through_and_then_a_steady_stream() -> None:
    bucket, began, passed = Bucket(qps=10.0, burst=20), time.monotonic(), list[float]()

    async def take() -> None:
        await bucket.take()
        passed.append(time.monotonic() - began)

    await asyncio.gather(*(take() for _ in range(60)))
    assert passed == pytest.approx([0.0] * 20 + [number / 10 for number in range(1, 41)])


async def test_a_server_that_asks_for_patience_gets_it_from_everyone() -> None:
    async with FakeApiServer().serving() as server:
        api = server.api()
        server.faults.append(Fault("GET", POD, status=429, headers={"Retry-After": "7"}))
        with pytest.raises(UnavailableError):
            await api.get(POD)
        began = time.monotonic()
        with pytest.raises(NotFoundError):
            await api.get("/api/v1/namespaces/default/pods/other")
        assert time.monotonic() - began == pytest.approx(7.0, abs=0.01)


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
