"""Kueue in the test cluster: its own chart, and an image with the program that was compiled for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import yaml
from jobs import Json, Team, every

from tests.cluster.api import Cluster, ClusterError
from tests.local_kubernetes import node_images, programs

NAMESPACE = "kueue-system"
IMAGE = "localhost/kueue"
API = "kueue.x-k8s.io/v1beta2"
QUEUE = "team"
LABEL_QUEUE, LABEL_PRIORITY = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
PRIORITIES = {"medium": 500, "high": 1000}
SKIPPED_KINDS = ("APIService",)
"""Kueue serves an API that lists waiting jobs. The API server of the tests does not forward requests to other servers."""


@contextmanager
def installed(cluster: Cluster) -> Iterator[None]:
    """Installs Kueue, and removes it in the end."""
    # Add the image.
    program = programs.build_kueue(cluster.places)
    tag = programs.KUEUE.rpartition("@")[2]
    node_images.add_program(cluster.places, f"{IMAGE}:{tag}", program, path="manager")
    # Apply the objects of the chart, except for the kinds that the test cluster does not support.
    image = "controllerManager.manager.image"
    values = (f"{image}.repository={IMAGE}", f"{image}.tag={tag}", f"{image}.pullPolicy=Never")
    options = (f"--namespace={NAMESPACE}", "--kube-version", programs.KUBERNETES, "--set", ",".join(values))
    rendered = cluster.run("helm", "template", "kueue", str(programs.kueue_chart()), *options).stdout
    objects = [one for one in yaml.safe_load_all(rendered) if one and one["kind"] not in SKIPPED_KINDS]
    objects.insert(0, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    text = yaml.safe_dump_all(objects)
    apply = ("apply", "--server-side", "--force-conflicts", "-f", "-")
    try:
        cluster.kubectl(*apply, stdin=text, seconds=120)
        wait = ("--for=condition=Available", "--timeout=120s")
        cluster.kubectl("-n", NAMESPACE, "wait", "deployment", "--all", *wait, seconds=130)
        yield
    finally:
        # The webhooks first: the API server asks them about each pod.
        kinds = "mutatingwebhookconfigurations,validatingwebhookconfigurations"
        try:
            cluster.kubectl("delete", kinds, "-l", "app.kubernetes.io/name=kueue")
        finally:
            cluster.kubectl(
                "delete", "--ignore-not-found", "--wait=false", "-f", "-", stdin=text, seconds=120
            )


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


@contextmanager
def other_pod(team: Team, name: str, priority: str) -> Iterator[None]:
    """A pod as large as a job's pods, with a higher priority in the queue. Returns when it runs."""
    security = {
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    pause = programs.directory(team.cluster.places) / "pause"
    container = {
        "name": "pause",
        "image": node_images.pause(pause),
        "imagePullPolicy": "Never",
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
        "securityContext": security,
    }
    labels = {LABEL_QUEUE: QUEUE, LABEL_PRIORITY: priority}
    metadata = {"name": name, "namespace": team.namespace, "labels": labels}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 1}
    try:
        team.cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        team.kubectl("wait", f"pod/{name}", "--for=condition=Ready", "--timeout=100s", seconds=110)
        yield
    finally:
        team.kubectl("delete", "pod", name, "--ignore-not-found")


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
