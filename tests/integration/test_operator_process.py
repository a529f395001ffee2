"""The whole operator as a process, against an API server that misbehaves: it goes on, and ends when it is told to."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from rltraining_api.names import API_VERSION, KIND, PLURAL

from tests.unit.operator.kube.fake_api_server import FakeApiServer, Fault, until

LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/rltraining-operator"
SPEC = {
    "algorithm": {"impala": {}},
    "environment": {"id": "CartPole-v1"},
    "sampler": {"replicas": 1},
    "stop": {"environmentSteps": 1000},
}


class Operator:
    """A process, and the server it talks to."""

    def __init__(self, server: FakeApiServer, process: asyncio.subprocess.Process, log: Path) -> None:
        self.server, self.process, self._log = server, process, log

    def lease(self) -> dict[str, Any]:
        return dict(self.server.objects.get(LEASE, {}).get("spec", {}))

    def leads(self) -> bool:
        return bool(self.lease().get("holderIdentity"))

    async def submit(self, name: str) -> None:
        """A job; its pods are there when this returns."""
        metadata = {"name": name, "namespace": "default", "generation": 1}
        job = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": SPEC}
        await self.server.put(f"/apis/{API_VERSION}/namespaces/default/{PLURAL}/{name}", job)
        pods = [f"/api/v1/namespaces/default/pods/{name}-{member}-0" for member in ("learner", "sampler")]
        await self.until(lambda: all(pod in self.server.objects for pod in pods))

    async def until(self, condition: Any) -> None:
        try:
            await until(lambda: condition() or self.process.returncode is not None, seconds=30)
        except TimeoutError:
            pytest.fail(f"waited in vain; the operator said:\n{self._log.read_text()}")
        assert self.process.returncode is None, f"the operator has ended:\n{self._log.read_text()}"

    async def end(self) -> tuple[float, float, int]:
        """SIGTERM: after how many seconds the lease was given back, after how many the process ended, and how."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        self.process.send_signal(signal.SIGTERM)
        ended = asyncio.create_task(self.process.wait())
        await until(lambda: not self.leads())
        released = loop.time() - began
        code = await ended
        return released, loop.time() - began, code


@asynccontextmanager
async def operating(folder: Path) -> AsyncIterator[Operator]:
    config, kubeconfig, log = (folder / name for name in ("config.yaml", "kubeconfig", "log"))
    with socket.create_server(("", 0)) as free:
        config.write_text(json.dumps({"httpPort": free.getsockname()[1], "resyncSeconds": 1000}))
    async with FakeApiServer().serving() as server:
        server.write_kubeconfig(kubeconfig)
        with log.open("w") as file:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "rltraining_operator.kube.main", "--config", str(config)),
                env={**os.environ, "KUBECONFIG": str(kubeconfig)},
                stderr=file,
            )
            try:
                operator = Operator(server, process, log)
                await operator.until(operator.leads)
                yield operator
            finally:
                if process.returncode is None:
                    process.kill()
                await process.wait()


def test_what_ends_kopf_ends_neither_the_process_nor_its_lead_and_sigterm_gives_the_lease_back_at_once(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with operating(tmp_path) as operator:
            server = operator.server
            await operator.submit("before")
            server.faults += [Fault("WATCH", PLURAL, status=401), Fault("WATCH", PLURAL, error=500)]
            watches = server.asked("WATCH", PLURAL)
            server.hang_up(PLURAL)
            await operator.until(lambda: server.asked("WATCH", PLURAL) == watches + 3)
            await operator.submit("after")
            assert operator.lease()["leaseTransitions"] == 0
            released, ended, code = await operator.end()
            assert released < 0.5, f"the lease was given back after {released:.2f} s"
            assert ended < 5.0, f"the process ended after {ended:.2f} s"
            assert code == 0

    asyncio.run(scenario())


def test_sigterm_while_the_server_refuses_kopf_gives_the_lease_back_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with operating(tmp_path) as operator:
            operator.server.faults.append(Fault("WATCH", PLURAL, status=403, times=1000))
            watches = operator.server.asked("WATCH", PLURAL)
            operator.server.hang_up(PLURAL)
            await operator.until(lambda: operator.server.asked("WATCH", PLURAL) > watches)
            released, ended, code = await operator.end()
            assert released < 0.5, f"the lease was given back after {released:.2f} s"
            assert ended < 5.0, f"the process ended after {ended:.2f} s"
            assert code == 0

    asyncio.run(scenario())
