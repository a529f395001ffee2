"""Nodes and pods that are played by kwok: thousands of them, for measurements of what only the API server sees."""

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
PODS_PER_NODE = 1000

OPTIONS = {
    "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
    "kind": "KwokConfiguration",
    "options": {"podPlayStageParallelism": 16},
}
"""Enough that measurements are not of kwok."""


def prepare(places: Places) -> None:
    programs.build_kwok(places)
    documents = [json.dumps(document, indent=1) for document in (OPTIONS, *STAGES)]
    write(places.configuration / "kwok.yaml", "\n---\n".join(documents))


def part(places: Places) -> Part:
    port = places.port("kwok", 10247)
    arguments = [
        str(programs.directory(places) / "kwok"),
        f"--kubeconfig={places.configuration / 'kwok.kubeconfig'}",
        f"--config={places.configuration / 'kwok.yaml'}",
        f"--manage-nodes-with-annotation-selector={MARK}=fake",
        f"--server-address=127.0.0.1:{port}",
        "--v=WARN",
        "--node-ip=10.127.0.1",
        "--cidr=10.128.0.0/14",
        "--node-lease-duration-seconds=40",
    ]
    return Part(Process("kwok", arguments, places.logs), answers(f"http://127.0.0.1:{port}/healthz"))


def add_nodes(places: Places, count: int) -> None:
    """Nodes fake-0 … fake-(count - 1); those that are there already stay as they are."""
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


_SIZE = {"cpu": "10k", "memory": "100Ti", "pods": PODS_PER_NODE, "ephemeral-storage": "100Ti"}

_NODE_STATUS = f"""
{{{{ $now := Now }}}}
addresses:
- {{type: InternalIP, address: {{{{ NodeIP | Quote }}}}}}
- {{type: Hostname, address: {{{{ .metadata.name | Quote }}}}}}
allocatable: {json.dumps(_SIZE)}
capacity: {json.dumps(_SIZE)}
conditions:
{{{{ range NodeConditions }}}}
- lastHeartbeatTime: {{{{ $now | Quote }}}}
  lastTransitionTime: {{{{ $now | Quote }}}}
  message: {{{{ .message | Quote }}}}
  reason: {{{{ .reason | Quote }}}}
  status: {{{{ .status | Quote }}}}
  type: {{{{ .type | Quote }}}}
{{{{ end }}}}
phase: Running
"""

_POD_STATUS = """
{{ $now := Now }}
conditions:
- {type: Initialized, status: "True", lastTransitionTime: {{ $now | Quote }}}
- {type: ContainersReady, status: "True", lastTransitionTime: {{ $now | Quote }}}
- {type: Ready, status: "True", lastTransitionTime: {{ $now | Quote }}}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  ready: true
  started: true
  restartCount: 0
  state: {running: {startedAt: {{ $now | Quote }}}}
{{ end }}
hostIP: {{ NodeIPWith .spec.nodeName | Quote }}
podIP: {{ PodIPWith .spec.nodeName false .metadata.uid .metadata.name .metadata.namespace | Quote }}
phase: Running
startTime: {{ $now | Quote }}
"""


def _stage(name: str, kind: str, conditions: list[dict[str, Any]], then: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": kind},
            "selector": {"matchExpressions": conditions},
            "next": then,
        },
    }


_ALIVE = {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"}

STAGES = (
    _stage(
        "node-ready",
        "Node",
        [
            {
                "key": '.status.conditions.[] | select( .type == "Ready" ) | .status',
                "operator": "NotIn",
                "values": ["True"],
            }
        ],
        {"statusTemplate": _NODE_STATUS},
    ),
    _stage(
        "pod-running",
        "Pod",
        [_ALIVE, {"key": ".status.podIP", "operator": "DoesNotExist"}],
        {"statusTemplate": _POD_STATUS},
    ),
    _stage(
        "pod-gone",
        "Pod",
        [{"key": ".metadata.deletionTimestamp", "operator": "Exists"}],
        {"delete": True},
    ),
)
"""What a node and a pod become, and when. A pod of any owner runs until it is deleted; none ends by itself."""
