"""Kueue in the test cluster: its own chart, and an image with the program that was compiled for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import partners
import yaml
from jobs import Json, Team, every, pause_pod

from tests.cluster.api import Cluster, ClusterError
from tests.local_kubernetes import programs

NAMESPACE = "kueue-system"
API = "kueue.x-k8s.io/v1beta2"
QUEUE = "team"
LABEL_QUEUE, LABEL_PRIORITY = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
PRIORITIES = {"medium": 500, "high": 1000}


@contextmanager
def installed(cluster: Cluster) -> Iterator[None]:
    """Installs Kueue, and removes it in the end."""
    repository, tag = partners.image(cluster, programs.KUEUE, "manager")
    chart = programs.module_folder(programs.KUEUE) / "charts" / "kueue"
    values = [f"repository={repository}", f"tag={tag}", "pullPolicy=Never"]
    values = [f"controllerManager.manager.image.{value}" for value in values]
    objects = partners.rendered(cluster, chart, NAMESPACE, values)
    objects.insert(0, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    with partners.installed(cluster, NAMESPACE, objects):
        yield


@contextmanager
def queue(team: Team, pods: int) -> Iterator[None]:
    """A queue of the team's namespace with room for this many pods of a job, and classes of priority."""
    quota = [{"name": "cpu", "nominalQuota": f"{10 * pods}m"}, {"name": "memory", "nominalQuota": "8Gi"}]
    flavors = [{"name": "any", "resources": quota}]
    spec = {
        "namespaceSelector": {},
        "preemption": {"withinClusterQueue": "LowerPriority"},
        "resourceGroups": [{"coveredResources": ["cpu", "memory"], "flavors": flavors}],
    }
    objects = [
        _object("ResourceFlavor", "any"),
        _object("ClusterQueue", QUEUE, spec=spec),
        _object("LocalQueue", QUEUE, team.namespace, spec={"clusterQueue": QUEUE}),
        *(_object("WorkloadPriorityClass", name, value=value) for name, value in PRIORITIES.items()),
    ]
    names = [f"{one['kind'].lower()}.{API.split('/')[0]}/{one['metadata']['name']}" for one in objects]
    try:
        _apply_when_ready(team.cluster, objects)
        yield
    finally:
        # Kueue ends pods and deletes its objects only while it runs.
        team.kubectl("wait", "--for=delete", "pod", "-l", LABEL_QUEUE, "--timeout=100s", seconds=110)
        team.kubectl("delete", "--ignore-not-found", "--timeout=60s", *reversed(names), seconds=70)


def other_pod(team: Team, name: str, priority: str) -> AbstractContextManager[None]:
    """A pod as large as a job's pods, with a higher priority in the queue. Returns when it runs."""
    return pause_pod(team, name, {LABEL_QUEUE: QUEUE, LABEL_PRIORITY: priority})


def _object(kind: str, name: str, namespace: str | None = None, **fields: Any) -> Json:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": API, "kind": kind, "metadata": metadata, **fields}


def _apply_when_ready(cluster: Cluster, objects: list[Json]) -> None:
    """Applies objects of Kueue. Its webhooks answer only some seconds after its pod is ready."""
    text, problem = yaml.safe_dump_all(objects), ""
    for _ in every(1.0, seconds=60):
        done = cluster.run("kubectl", "apply", "-f", "-", stdin=text, check=False)
        if not done.returncode:
            return
        problem = done.stderr
    raise ClusterError(problem)
