"""The operator's key and the tokens derived from it."""

from __future__ import annotations

import asyncio
import base64

import pytest
from fake_api_server import FakeApiServer, Fault
from rltraining_operator.errors import RejectedError
from rltraining_operator.kube.tokens import Tokens, load_key

NAMESPACE, NAME = "rltraining-system", "rltraining-operator-key"
PATH = f"/api/v1/namespaces/{NAMESPACE}/secrets/{NAME}"
EMPTY = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": NAME, "namespace": NAMESPACE}}


def test_each_job_has_a_token_that_the_key_alone_gives() -> None:
    tokens = Tokens(b"k" * 32)
    assert len({tokens.of("a"), tokens.of("b"), Tokens(b"l" * 32).of("a")}) == 3
    assert tokens.of("a") == "fd9bd5ac6d08f39763de4c68870c05c1713569625d8e835b4b89fdc2a539d3b6", (
        "a newer operator derives the same"
    )


@pytest.mark.parametrize("chart", [True, False])
async def test_the_key_is_made_once(chart: bool) -> None:
    """The chart creates an empty Secret. The operator may read and fill this Secret and no other."""
    async with FakeApiServer().serving() as server:
        if chart:
            await server.put(PATH, EMPTY)
        replicas = await asyncio.gather(*(load_key(server.api(), NAMESPACE, NAME) for _ in range(4)))
        assert len(set(replicas)) == 1, "replicas that begin together agree"
        assert len(replicas[0]) == 32
        assert await load_key(server.api(), NAMESPACE, NAME) == replicas[0]
        if chart:
            assert server.asked("POST", "/secrets") == 0


async def test_a_key_that_others_make_at_the_same_time_is_taken() -> None:
    async with FakeApiServer().serving() as server:
        server.faults.append(Fault("GET", "/secrets", status=404))
        theirs = base64.b64encode(b"t" * 32).decode()
        await server.put(PATH, EMPTY | {"data": {"key": theirs}})
        assert await load_key(server.api(), NAMESPACE, NAME) == b"t" * 32


@pytest.mark.parametrize("data", [{"key": ""}, {"key": "c2hvcnQ="}, {"key": "?"}, {"other": "AAAA"}])
async def test_a_key_that_is_too_short_is_refused_and_not_replaced(data: dict[str, str]) -> None:
    """Running jobs hold tokens that were derived from the existing key."""
    async with FakeApiServer().serving() as server:
        await server.put(PATH, EMPTY | {"data": data})
        with pytest.raises(RejectedError, match="key must be at least 32 bytes"):
            await load_key(server.api(), NAMESPACE, NAME)
        assert server.objects[PATH]["data"] == data
