"""Operators that run as processes, since no pod has to run."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rltraining_api.names import API_VERSION, KIND

from tests.cluster.api import Cluster
from tests.free_port import free_port

CRD = Path(__file__).parents[3] / "crds" / "rltraining.dev_rltrainingjobs.yaml"
PROGRAM = Path(sys.executable).with_name("rltraining-operator")
SPEC = {
    "algorithm": {"impala": {}},
    "environment": {"id": "CartPole-v1"},
    "sampler": {"replicas": 2},
    "stop": {"environmentSteps": 1000},
}


@contextmanager
def operator(cluster: Cluster, log: Path, *options: str) -> Iterator[None]:
    """Runs an operator within the block, and checks that it ends well."""
    with log.open("a") as file:
        command = [PROGRAM, "--http-port", str(free_port()), *options]
        process = subprocess.Popen(command, env=cluster.environment, stderr=file)
        try:
            yield
        finally:
            process.terminate()
            assert process.wait() == 0, log.read_text()


def submit(cluster: Cluster, namespace: str, *names: str) -> None:
    cluster.apply(
        *(
            {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "metadata": {"name": name, "namespace": namespace},
                "spec": SPEC,
            }
            for name in names
        )
    )


def names(cluster: Cluster, kind: str, namespace: str) -> list[str]:
    return sorted(found["metadata"]["name"] for found in cluster.get(kind, "-n", namespace)["items"])


def until(holds: Callable[[], bool], log: Path) -> None:
    end = time.monotonic() + 100  # far longer than any wait, also on a busy machine
    while not holds():
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.2)
