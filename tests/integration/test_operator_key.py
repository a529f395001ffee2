"""The operator's key is changed while a job runs, as docs/operations/security.md describes it."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

from operator_process import Operator, operating
from rltraining_api.contract import HTTP_PORT
from rltraining_api.names import API_VERSION, PLURAL

from tests.unit.operator.kube.fake_api_server import FakeApiServer

CORE = "/api/v1/namespaces/default"
KEY = f"{CORE}/secrets/rltraining-operator-key"
JOB = f"/apis/{API_VERSION}/namespaces/default/{PLURAL}/job"
LEARNER, SAMPLER = (f"{CORE}/pods/job-{role}-0" for role in ("learner", "sampler"))
RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}


class Learner:
    """Answers requests that present its token, and no others."""

    def __init__(self) -> None:
        self.token = ""
        self.steps = count(1)

    @asynccontextmanager
    async def at(self, address: str) -> AsyncIterator[None]:
        async with await asyncio.start_server(self._serve, address, HTTP_PORT):
            yield

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if f"Authorization: Bearer {self.token}\r\n".encode() in head:
            report = {"state": "Training", "progress": {"environmentSteps": next(self.steps)}}
            writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + json.dumps(report).encode())
        else:
            writer.write(b"HTTP/1.0 401 Unauthorized\r\n\r\n")
        writer.close()


def secret_of(server: FakeApiServer) -> tuple[str, Any]:
    """Path and content of the job's Secret, as its learner's pod mounts it."""
    volumes = server.objects[LEARNER]["spec"]["volumes"]
    (name,) = (volume["secret"]["secretName"] for volume in volumes if "secret" in volume)
    path = f"{CORE}/secrets/{name}"
    return path, server.objects[path]


def token_in(secret: Any) -> str:
    return base64.b64decode(secret["data"]["token"]).decode()


async def start_pods(operator: Operator, address: str) -> None:
    await operator.tell("job-learner-0", RUNNING, ready=True, address=address)
    await operator.tell("job-sampler-0", RUNNING, ready=True)


async def suspend(operator: Operator, wanted: bool) -> None:
    job = operator.job("job")
    metadata = job["metadata"] | {"generation": job["metadata"]["generation"] + 1}
    spec = job["spec"] | {"runPolicy": {"suspend": wanted}}
    await operator.server.put(JOB, job | {"metadata": metadata, "spec": spec})


async def until_progress(operator: Operator) -> None:
    """Waits until the status has two newer reports."""

    def steps() -> int:
        return int((operator.status("job").get("progress") or {}).get("environmentSteps", 0))

    before = steps()
    await operator.until(lambda: steps() > before + 1)


def test_a_running_job_keeps_its_token_and_gets_another_when_it_is_suspended_and_resumed(
    tmp_path: Path,
) -> None:
    address, learner = f"127.{os.getpid() >> 8 & 127 | 64}.{os.getpid() & 255}.1", Learner()

    async def scenario() -> None:
        async with learner.at(address), FakeApiServer().serving() as server:
            async with operating(tmp_path, server=server, progressSeconds=0.2) as operator:
                await operator.submit("job")
                path, secret = secret_of(server)
                learner.token = token_in(secret)
                await start_pods(operator, address)
                await until_progress(operator)

                # Remove the key. A running operator keeps the key that it has read.
                await server.put(
                    KEY, {name: part for name, part in server.objects[KEY].items() if name != "data"}
                )
                await until_progress(operator)
                assert await operator.end() == 0

            async with operating(tmp_path, server=server, progressSeconds=0.2) as operator:
                # The restarted operator has another key, so the learner refuses its token; the job continues.
                refused = "default/job-learner-0: its report cannot be read: it refuses the token"
                await operator.until(lambda: refused in operator.log())
                assert "the job's token is from another key" in operator.log()

                # A replacement of a pod gets the token that the others hold.
                uid = server.objects[SAMPLER]["metadata"]["uid"]
                await server.drop(SAMPLER)
                await operator.until(
                    lambda: SAMPLER in server.objects and server.objects[SAMPLER]["metadata"]["uid"] != uid
                )
                assert secret_of(server) == (path, secret)
                await start_pods(operator, address)
                await operator.until(lambda: operator.phase("job") == "Running")

                # A new token: suspend the job, delete its Secret, resume it.
                await suspend(operator, True)
                await operator.until(lambda: not {LEARNER, SAMPLER} & server.objects.keys())
                await server.drop(path)
                await suspend(operator, False)
                await operator.until(lambda: {LEARNER, SAMPLER} <= server.objects.keys())
                assert token_in(server.objects[path]) != learner.token
                learner.token = token_in(server.objects[path])
                await start_pods(operator, address)
                await until_progress(operator)

    asyncio.run(scenario())
