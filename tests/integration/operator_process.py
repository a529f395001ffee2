"""The whole operator as a process, against an API server in memory."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from rltraining_api.contract import TRAINER_CONTAINER
from rltraining_api.names import API_VERSION, KIND, PLURAL
from transport_processes import GRACE_SECONDS, HANG_SECONDS

from tests.free_port import free_port
from tests.unit.operator.kube.fake_api_server import FakeApiServer, until

LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/rltraining-operator"
SPEC = {
    "algorithm": {"impala": {}},
    "environment": {"id": "CartPole-v1"},
    "sampler": {"replicas": 1},
    "stop": {"environmentSteps": 1000},
}

PROGRAM = """
import sys
from rltraining_operator.kube import app, main

app.DRAIN_SECONDS = 1200.0  # to wait for it would show as a hang
sys.exit(main.main())
"""


class Operator:
    """An operator's process and its API server."""

    def __init__(
        self, server: FakeApiServer, process: asyncio.subprocess.Process, log: Path, port: int
    ) -> None:
        self.server, self.process, self._log = server, process, log
        self.port = port
        """The port for probes and Prometheus."""

    def lease(self) -> dict[str, Any]:
        return dict(self.server.objects.get(LEASE, {}).get("spec", {}))

    def leads(self) -> bool:
        return bool(self.lease().get("holderIdentity"))

    async def submit(self, name: str) -> None:
        """Submits a job, and waits for its pods."""
        metadata = {"name": name, "namespace": "default", "generation": 1}
        job = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": SPEC}
        await self.server.put(f"/apis/{API_VERSION}/namespaces/default/{PLURAL}/{name}", job)
        pods = [f"/api/v1/namespaces/default/pods/{name}-{member}-0" for member in ("learner", "sampler")]
        await self.until(lambda: all(pod in self.server.objects for pod in pods))

    def phase(self, job: str) -> str:
        return str(self.status(job).get("phase"))

    def status(self, job: str) -> dict[str, Any]:
        return dict(self.job(job).get("status") or {})

    def job(self, job: str) -> dict[str, Any]:
        return dict(self.server.objects[f"/apis/{API_VERSION}/namespaces/default/{PLURAL}/{job}"])

    def log(self) -> str:
        return self._log.read_text()

    def peak_megabytes(self) -> int:
        """Returns the peak resident memory."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) >> 10

    def descriptors(self) -> int:
        return sum(1 for _ in Path(f"/proc/{self.process.pid}/fd").iterdir())

    async def tell(self, pod: str, state: dict[str, Any], *, ready: bool, address: str = "") -> None:
        """Reports a pod's status as a kubelet does: the state of its container, its readiness, and its address."""
        path = f"/api/v1/namespaces/default/pods/{pod}"
        container = {"name": TRAINER_CONTAINER, "state": state, "ready": ready, "restartCount": 0}
        condition = {"type": "Ready", "status": "True" if ready else "False"}
        phase = "Failed" if "terminated" in state else "Running"
        status = {"phase": phase, "conditions": [condition], "containerStatuses": [container]}
        status |= {"podIP": address} if address else {}
        await self.server.put(path, self.server.objects[path] | {"status": status})

    async def until(self, condition: Any) -> None:
        try:
            await until(lambda: condition() or self.process.returncode is not None, HANG_SECONDS)
        except TimeoutError:
            pytest.fail(f"timed out; the operator's log:\n{self._log.read_text()}")
        assert self.process.returncode is None, f"the operator has ended:\n{self._log.read_text()}"

    async def end(self) -> int:
        """Sends SIGTERM. Returns the exit code.

        Checks that the operator releases the lease and ends within the grace period.
        """
        self.process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(GRACE_SECONDS):
                await until(lambda: not self.leads(), GRACE_SECONDS)
                return await self.process.wait()
        except TimeoutError:
            pytest.fail(f"it does not end in order; the lease is {self.lease()}; its log:\n{self.log()}")


@asynccontextmanager
async def operating(
    folder: Path,
    *,
    limits: Mapping[int, int] | None = None,
    server: FakeApiServer | None = None,
    **settings: Any,
) -> AsyncIterator[Operator]:
    """Runs an operator that leads.

    `limits` are resource limits, by `resource.RLIMIT_*`. `server` is an earlier operator's server.
    `settings` are added to the operator's configuration.
    """

    def limit() -> None:
        for kind, most in (limits or {}).items():
            resource.setrlimit(kind, (most, most))

    config, kubeconfig, log = (folder / name for name in ("config.yaml", "kubeconfig", "log"))
    port = free_port()
    config.write_text(json.dumps({"httpPort": port, "resyncSeconds": 1000} | settings))
    async with AsyncExitStack() as stack:
        server = server or await stack.enter_async_context(FakeApiServer().serving())
        server.write_kubeconfig(kubeconfig)
        with log.open("w") as file:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", PROGRAM, "--config", str(config)),
                env={**os.environ, "KUBECONFIG": str(kubeconfig)},
                stderr=file,
                preexec_fn=limit,
            )
            try:
                operator = Operator(server, process, log, port)
                await operator.until(operator.leads)
                yield operator
            finally:
                if process.returncode is None:
                    process.kill()
                await process.wait()
