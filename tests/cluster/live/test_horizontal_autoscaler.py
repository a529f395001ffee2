"""A HorizontalPodAutoscaler that scales the samplers of a job, with a real metrics-server: `make partners`, which is not
part of `make live`."""

from __future__ import annotations

from collections.abc import Iterator

import partners
import pytest
from jobs import Json, Team, example
from rltraining_api.names import API_VERSION, KIND, PLURAL

from tests.local_kubernetes import programs

pytestmark = pytest.mark.timeout(600)
NAME, NAMESPACE = "metrics-server", "kube-system"


@pytest.fixture(scope="module", autouse=True)
def _metrics_server(team: Team) -> Iterator[None]:
    team.cluster.need_local("it adds the image of metrics-server to the node")
    repository, tag = partners.image(team.cluster, programs.METRICS_SERVER, NAME)
    chart = programs.module_folder(programs.METRICS_SERVER) / "charts" / NAME
    # The certificate of the kubelet is of the test cluster's own authority.
    values = [f"image.repository={repository}", f"image.tag={tag}", "image.pullPolicy=Never"]
    values += ["args={--kubelet-insecure-tls,--metric-resolution=10s,--kubelet-request-timeout=9s}"]
    objects = partners.rendered(team.cluster, chart, NAMESPACE, values)
    with partners.installed(team.cluster, NAMESPACE, objects):
        yield


def test_an_autoscaler_changes_the_number_of_samplers(team: Team) -> None:
    spec = example("cartpole-impala", stop={"environmentSteps": 10**9}, sampler={"replicas": 1})
    with team.job("busy", spec | team.gentle("busy")) as job:
        job.until_ready("1/1", "1/1")
        team.cluster.apply(_autoscaler(team, job.name, per_pod="1m"))
        try:
            job.until_ready("1/1", "3/3")
            job.until_steps()
            assert _measured_pods(team, job.name) == {f"busy-sampler-{index}" for index in range(3)}
            team.cluster.apply(_autoscaler(team, job.name, per_pod="64"))
            job.until_ready("1/1", "1/1")
            job.until_steps()
            path = f"/apis/autoscaling/v2/namespaces/{team.namespace}/horizontalpodautoscalers/{job.name}"
            conditions = {
                one["type"]: one["status"] for one in team.cluster.read(path)["status"]["conditions"]
            }
            assert conditions["AbleToScale"] == conditions["ScalingActive"] == "True"
            assert (job.status["restarts"], job.status["failures"]) == (0, 0), (
                "changes of scale are no failures"
            )
        finally:
            team.kubectl("delete", "horizontalpodautoscaler", job.name)


def _measured_pods(team: Team, job: str) -> set[str]:
    """Returns the pods that the scale of a job selects. The autoscaler averages their processor time."""
    namespace = team.namespace
    scale = team.cluster.read(f"/apis/{API_VERSION}/namespaces/{namespace}/{PLURAL}/{job}/scale")
    selector = scale["status"]["selector"]
    found = team.cluster.read(f"/api/v1/namespaces/{namespace}/pods", labelSelector=selector)
    return {pod["metadata"]["name"] for pod in found["items"]}


def _autoscaler(team: Team, job: str, per_pod: str) -> Json:
    """An autoscaler of a job's samplers, without the five minutes for which a lower number waits by default."""
    target = {"type": "AverageValue", "averageValue": per_pod}
    spec = {
        "scaleTargetRef": {"apiVersion": API_VERSION, "kind": KIND, "name": job},
        "minReplicas": 1,
        "maxReplicas": 3,
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
    }
    metadata = {"name": job, "namespace": team.namespace}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": metadata,
        "spec": spec,
    }
