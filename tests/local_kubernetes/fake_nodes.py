"""Nodes that kwok simulates, for benchmarks with thousands of pods. Pods run immediately, until they are deleted."""

from __future__ import annotations

import json
from typing import Any

from tests.local_kubernetes import programs
from tests.local_kubernetes.host import run
from tests.local_kubernetes.parts import Part, answers
from tests.local_kubernetes.places import Places, write
from tests.local_kubernetes.processes import Process
from tests.local_kubernetes.progress import step

MARK = "kwok.x-k8s.io/node"
OPTIONS = {
    "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
    "kind": "KwokConfiguration",
    "options": {"podPlayStageParallelism": 16},
}
"""High enough that benchmarks do not measure kwok."""


def prepare(places: Places) -> None:
    programs.build_separately(places, programs.KWOK)
    write(places.configuration / "kwok.json", json.dumps(OPTIONS))


def part(places: Places) -> Part:
    port = places.port("kwok", 10247)
    arguments = [
        str(programs.build_separately(places, programs.KWOK)),
        f"--kubeconfig={places.configuration / 'kwok.kubeconfig'}",
        f"--config={places.configuration / 'kwok.json'}",
        f"--manage-nodes-with-annotation-selector={MARK}=fake",
        f"--server-address=127.0.0.1:{port}",
        "--v=WARN",
        "--node-ip=10.127.0.1",
        "--cidr=10.128.0.0/14",
        "--node-lease-duration-seconds=40",
    ]
    return Part(Process("kwok", arguments, places.logs), answers(f"http://127.0.0.1:{port}/healthz"))


def add_nodes(places: Places, count: int) -> None:
    """Adds nodes fake-0 … fake-(count - 1). Existing nodes are not changed."""
    kubectl = [str(programs.directory(places) / "kubectl"), "--kubeconfig", str(places.kubeconfig)]
    nodes = {"apiVersion": "v1", "kind": "List", "items": [_node(index) for index in range(count)]}
    with step(f"{count} fake nodes"):
        run(*kubectl, "apply", "--server-side", "-f", "-", stdin=json.dumps(nodes))
        run(*kubectl, "wait", "nodes", "-l", "type=fake", "--for=condition=Ready", "--timeout=120s")


def _node(index: int) -> dict[str, Any]:
    name = f"fake-{index}"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {MARK: "fake"},
            "labels": {"type": "fake", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux"},
        },
    }
