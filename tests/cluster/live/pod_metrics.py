"""What Prometheus scrapes in a cluster from the pods that the configuration in docs/monitoring.md selects."""

from __future__ import annotations

from typing import Any

import yaml
from docs_pages import blocks
from jobs import Job
from prometheus_client.parser import text_string_to_metric_families


def pod_metrics(job: Job) -> dict[str, dict[str, float]]:
    """Metrics by pod, summed over labels, of the pods of a job and of the operator."""
    team = job.team
    (text,) = [block.text for block in blocks("yaml") if "scrape_configs" in block.text]
    found: dict[str, dict[str, float]] = {}
    for scraped in yaml.safe_load(text)["scrape_configs"]:
        (discovery,) = scraped["kubernetes_sd_configs"]
        (selector,) = discovery["selectors"]
        for namespace, prefix in ((team.namespace, job.name), (team.operator_namespace, team.release)):
            path = f"/api/v1/namespaces/{namespace}/pods"
            for pod in team.cluster.read(path, labelSelector=selector["label"])["items"]:
                name, port = pod["metadata"]["name"], http_port(pod)
                if name.startswith(prefix) and port:  # pods of other jobs may end in the meantime
                    found[name] = summed(
                        team.cluster.kubectl("get", "--raw", f"{path}/{name}:{port}/proxy/metrics")
                    )
    return found


def http_port(pod: dict[str, Any]) -> int:
    """The container port named `http`, or 0."""
    ports = [port for container in pod["spec"]["containers"] for port in container.get("ports", ())]
    return next((int(port["containerPort"]) for port in ports if port.get("name") == "http"), 0)


def summed(text: str) -> dict[str, float]:
    read: dict[str, float] = {}
    for sample in (sample for family in text_string_to_metric_families(text) for sample in family.samples):
        read[sample.name] = read.get(sample.name, 0.0) + sample.value
    return read
