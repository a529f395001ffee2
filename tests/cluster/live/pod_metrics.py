"""What Prometheus is answered in a cluster, by the pods that it finds with the configuration of docs/metrics.md."""

from __future__ import annotations

import json
from typing import Any
from urllib.request import urlopen

import yaml
from docs_pages import blocks
from jobs import Team
from prometheus_client.parser import text_string_to_metric_families


def pod_metrics(team: Team) -> dict[str, dict[str, float]]:
    """By pod and metric, summed over labels; pods of the team's jobs and of its operator."""
    (text,) = [block.text for block in blocks("yaml") if "scrape_configs" in block.text]
    found: dict[str, dict[str, float]] = {}
    for scraped in yaml.safe_load(text)["scrape_configs"]:
        (discovery,) = scraped["kubernetes_sd_configs"]
        (selector,) = discovery["selectors"]
        running = ["-l", selector["label"], "--field-selector=status.phase=Running", "-o", "json"]
        for kubectl in (team.kubectl, team.operator):  # elsewhere pods may end meanwhile
            for pod in json.loads(kubectl("get", "pods", *running))["items"]:
                found[pod["metadata"]["name"]] = _read(pod)
    return found


def _read(pod: dict[str, Any]) -> dict[str, float]:
    containers = pod["spec"]["containers"]
    ports = [
        port for container in containers for port in container.get("ports", ()) if port["name"] == "http"
    ]
    address = f"{pod['status']['podIP']}:{ports[0]['containerPort']}"
    with urlopen(f"http://{address}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    read: dict[str, float] = {}
    for sample in (sample for family in text_string_to_metric_families(text) for sample in family.samples):
        read[sample.name] = read.get(sample.name, 0.0) + sample.value
    return read
