"""An operator that gives each job a PodMonitor, before and after the cluster has the kind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from operators import CRD, names, operator, submit, until

from tests.cluster.api import Cluster

NAMESPACE, KIND = "monitored", "podmonitors.monitoring.coreos.com"
POD_MONITORS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": KIND},
    "spec": {
        "group": "monitoring.coreos.com",
        "names": {"kind": "PodMonitor", "plural": "podmonitors"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                },
            }
        ],
    },
}

pytestmark = pytest.mark.timeout(300)


def test_a_job_runs_without_the_kind_and_gets_its_monitor_later(api_server: Cluster, tmp_path: Path) -> None:
    cluster, log, config = api_server, tmp_path / "log", tmp_path / "config.yaml"
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CRD))
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    config.write_text(json.dumps({"namespaces": [NAMESPACE], "podMonitor": {"enabled": True}}))
    try:
        with operator(cluster, log, f"--config={config}", "--no-leader-election"):
            submit(cluster, NAMESPACE, "demo")
            until(lambda: len(names(cluster, "pods", NAMESPACE)) == 3, log)
            until(lambda: rejected(cluster) == "True", log)
            cluster.apply(POD_MONITORS)
            until(lambda: rejected(cluster) == "False", log)
            assert names(cluster, KIND, NAMESPACE) == ["demo"]
    finally:
        cluster.kubectl("delete", "crd", KIND, "--ignore-not-found")
        cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def rejected(cluster: Cluster) -> str:
    """Returns the status of the condition with the reason of a missing kind."""
    conditions = cluster.get("rlj", "demo", "-n", NAMESPACE).get("status", {}).get("conditions", ())
    return next((each["status"] for each in conditions if each["type"] == "ReplicaFailure"), "")
