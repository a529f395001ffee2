"""The PodMonitor of a job, for prometheus-operator."""

from __future__ import annotations

from operator_world import LEARNER, SAMPLER_0, make_world
from rltraining_operator.errors import RejectedError
from rltraining_operator.settings import Settings
from test_engine import KEY, RecordingCluster, reconcile

SETTINGS = Settings(
    pod_monitor_interval="30s", pod_monitor_labels={"release": "prometheus", "rltraining.dev/job-name": "?"}
)


def test_a_job_gets_a_pod_monitor_if_the_administrator_wants_them() -> None:
    world = make_world().settle()
    assert "PodMonitor" not in {kind for kind, _ in world.others}
    world.settings = SETTINGS
    world.settle()
    monitor = world.others["PodMonitor", "demo"]
    assert monitor["apiVersion"] == "monitoring.coreos.com/v1"
    labels = {"rltraining.dev/job-name": "demo", "app.kubernetes.io/managed-by": "rltraining-operator"}
    assert monitor["metadata"]["labels"] == labels | {"release": "prometheus"}
    (endpoint,) = monitor["spec"].pop("podMetricsEndpoints")
    assert monitor["spec"] == {"selector": {"matchLabels": labels}}, "in the namespace of the job"
    label = "__meta_kubernetes_pod_label_rltraining_dev_job_name"
    assert endpoint == {
        "port": "http",
        "path": "/metrics",
        "interval": "30s",
        "relabelings": [{"sourceLabels": [label], "targetLabel": "training_job"}],
    }
    for name in (LEARNER, SAMPLER_0):
        pod = world.pods[name]
        assert labels.items() <= pod["metadata"]["labels"].items()
        assert "http" in {port["name"] for port in pod["spec"]["containers"][0]["ports"]}


async def test_without_prometheus_operator_jobs_run_and_the_reason_is_reported() -> None:
    cluster = RecordingCluster(make_world())
    absent = RejectedError("this cluster has no PodMonitor of monitoring.coreos.com/v1")
    cluster.refuse = lambda call: absent if call == "apply PodMonitor" else None
    await reconcile(cluster, KEY, lambda: cluster.world.now, SETTINGS)
    assert LEARNER in cluster.world.pods
    (condition,) = (c for c in cluster.world.status.conditions if c.type == "ReplicaFailure")
    assert (condition.status, condition.reason) == ("True", "OptionalObjectRejected")
    assert condition.message == (
        f"PodMonitor demo: {absent}. The job runs without it: install prometheus-operator's CRDs, "
        "or set metrics.podMonitor.perJob to false in the operator's chart"
    )
