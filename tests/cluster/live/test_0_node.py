"""The cluster that runs the pods of these tests: names, Services, logs and volumes work in it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.cluster.api import Cluster, ClusterError
from tests.local_kubernetes import programs, registry, scratch_image

SPACE = f"itself-{os.getpid()}"
"""A namespace of this run's, so that the next one need not wait for its end."""


def _pod(name: str, image: str) -> dict[str, Any]:
    """As strict as Pod Security `restricted` wants it; writes to its volume as a user without rights."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": SPACE, "labels": {"app": "itself"}},
        "spec": {
            "hostname": name,
            "subdomain": "itself",
            "terminationGracePeriodSeconds": 0,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65532,
                "fsGroup": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
            "containers": [
                {
                    "name": "main",
                    "image": image,
                    "args": ["serve", "8080"],
                    "readinessProbe": {"httpGet": {"port": 8080, "path": "/"}, "periodSeconds": 1},
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "readOnlyRootFilesystem": True,
                        "capabilities": {"drop": ["ALL"]},
                    },
                }
            ],
        },
    }


NAMESPACE = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": SPACE, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
}
CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "data", "namespace": SPACE},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
}


def _service(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": SPACE},
        "spec": {"selector": {"app": "itself"}, "ports": [{"port": 80, "targetPort": 8080}], **spec},
    }


@pytest.fixture
def node(cluster: Cluster) -> Iterator[Cluster]:
    cluster.need_local("this tests the local Kubernetes itself")
    yield cluster
    cluster.kubectl("delete", "namespace", SPACE, "--ignore-not-found", "--wait=false")


def test_a_restricted_pod_has_names_services_logs_and_a_volume(node: Cluster) -> None:
    image = scratch_image.push(
        registry.address(node.places), "pause", programs.directory(node.places) / "pause"
    )
    objects = (
        NAMESPACE,
        CLAIM,
        _service("itself", clusterIP="None"),
        _service("virtual"),
        _pod("web", image),
    )
    node.apply(*objects)
    node.kubectl("wait", "-n", SPACE, "pod/web", "--for=condition=Ready", "--timeout=60s")

    def inside(*command: str) -> str:
        return node.kubectl("exec", "-n", SPACE, "web", "--", "/pause", *command).strip()

    inside("write", "/data/file", "written")
    assert inside("read", "/data/file") == "written"
    assert node.kubectl("logs", "-n", SPACE, "web").strip() == "serving on 8080"
    _soon(lambda: inside("get", f"http://web.itself.{SPACE}.svc.cluster.local:8080/") == "web")
    _soon(lambda: inside("get", "http://virtual/") == "web")


def _soon(holds: Callable[[], bool]) -> None:
    """Names and Services follow a pod that is ready after a moment."""
    end = time.monotonic() + 20
    while True:
        try:
            done = holds()
        except ClusterError:
            done = False
        if done:
            return
        assert time.monotonic() < end, "not within 20 s"
        time.sleep(0.1)
