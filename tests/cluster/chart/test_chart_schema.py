"""What the chart accepts as values, and what it refuses, with the words it refuses it with."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from helm import CHART, EVERYTHING, KUBERNETES, Helm, HelmError, Values


def at(path: str, value: Any) -> dict[str, Any]:
    """`at("image.tag", 1)` is `{"image": {"tag": 1}}`."""
    for key in reversed(path.split(".")):
        value = {key: value}
    return value


ACCEPTED: list[Values] = [
    {},
    EVERYTHING,
    at("global", {"anything": 1}),
    at("fullnameOverride", "rl"),
    at("image", {"registry": "localhost:5000", "tag": "1.2.3-rc.1", "pullPolicy": "Never"}),
    at("image.digest", "sha256:" + "0" * 64),
    at("image.registry", "registry.example.com/team"),
    at("image.repository", "team/learning/rltraining-operator"),
    at("watchNamespaces", ["team-a"]),
    at("replicaCount", 0),
    at("operator.qps", 0.5),
    at("operator.progressSeconds", 2.5),
    at("jobs.rpcPorts", "1024-65535"),
    at("jobs.networkPolicy.prometheus.podSelector", {}),
    at("resources.limits", {"cpu": 2, "memory": "1Gi"}),
    at("resources.limits.memory", None),
    at("strategy.type", "Recreate"),
    at("metrics.serviceMonitor.interval", "500ms"),
    at("podDisruptionBudget.maxUnavailable", "50%"),
    at("networkPolicy.metricsFrom", [{"ipBlock": {"cidr": "10.0.0.0/8"}}]),
    at("extraEnv", [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]),
]

REFUSED: list[tuple[str, Any, str]] = [
    ("replicas", 2, "'replicas' not allowed"),
    ("image.name", "x", "'name' not allowed"),
    ("image.repository", "Upper/Case", "does not match pattern"),
    ("image.repository", None, "missing property 'repository'"),
    ("image.tag", "a b", "does not match pattern"),
    ("image.tag", 1.0, "got number, want string"),
    ("image.digest", "sha256:abc", "does not match pattern"),
    ("image.pullPolicy", "Sometimes", "must be one of 'Always', 'IfNotPresent', 'Never'"),
    ("image.registry", "https://registry", "does not match pattern"),
    ("image.registry", "registry/", "does not match pattern"),
    ("imagePullSecrets", ["registry"], "want object"),
    ("imagePullSecrets", [{"secret": "registry"}], "'secret' not allowed"),
    ("fullnameOverride", "Rl_Training", "does not match pattern"),
    ("fullnameOverride", "x" * 64, "maxLength"),
    ("crds.install", "yes", "got string, want boolean"),
    ("crds.annotations", {"a": 1}, "want string"),
    ("watchNamespaces", "team-a", "want array"),
    ("watchNamespaces", ["Team_A"], "does not match pattern"),
    ("watchNamespaces", ["a", "a"], "items at 0 and 1 are equal"),
    ("watchNamespaces", [""], "does not match pattern"),
    ("replicaCount", -1, "minimum"),
    ("replicaCount", 1.5, "want integer"),
    ("replicaCount", "2", "want integer"),
    ("leaderElection.enabled", False, "'enabled' not allowed"),
    ("leaderElection.leaseSeconds", 1, "minimum"),
    ("leaderElection.renewSeconds", 0, "exclusiveMinimum"),
    ("leaderElection.renewSeconds", 10, "must be less than leaseSeconds"),
    ("leaderElection.retrySeconds", 7, "must be less than renewSeconds"),
    ("operator.workers", 0, "minimum"),
    ("operator.qps", 0, "exclusiveMinimum"),
    ("operator.qps", "fast", "want number"),
    ("operator.burst", 0, "minimum"),
    ("operator.progressSeconds", -1, "exclusiveMinimum"),
    ("operator.httpPort", 80, "minimum"),
    ("operator.threads", 4, "'threads' not allowed"),
    ("log.level", "verbose", "must be one of"),
    ("log.format", "xml", "must be one of"),
    ("jobs.networkPolicy", False, "want object"),
    ("jobs.networkPolicy.prometheus", {"ipBlock": {}}, "'ipBlock' not allowed"),
    ("jobs.podDisruptionBudget", "true", "want boolean"),
    ("jobs.rpcPorts", 20000, "want string"),
    ("jobs.rpcPorts", "20000:29999", "does not match pattern"),
    ("jobs.rpcPorts", "29999-20000", "must be first-last"),
    ("jobs.rpcPorts", "20000-99999", "must be first-last"),
    ("jobs.rpcPorts", "1000-2000", "must be first-last"),
    ("gangScheduling", True, "want object"),
    ("rbac.create", 1, "want boolean"),
    ("serviceAccount.name", "a b", "does not match pattern"),
    ("podLabels", {"team": "a b"}, "does not match pattern"),
    ("podAnnotations", {"team": True}, "want string"),
    ("resources.request", {}, "'request' not allowed"),
    ("resources.limits", {"memory": ["1Gi"]}, "got array, want"),
    ("nodeSelector", {"disk": 1}, "want string"),
    ("tolerations", {"key": "a"}, "want array"),
    ("affinity", {"nodes": {}}, "'nodes' not allowed"),
    ("topologySpreadConstraints", [{"maxSkew": 1}], "missing properties"),
    ("strategy.type", "OnDelete", "must be one of"),
    ("terminationGracePeriodSeconds", -1, "minimum"),
    ("extraEnv", {"A": "b"}, "want array"),
    ("extraEnv", [{"value": "b"}], "missing property 'name'"),
    ("extraEnv", [{"name": "A", "value": 1}], "want string"),
    ("extraArgs", "--log-level=debug", "want array"),
    ("metrics.serviceMonitor.interval", "30", "does not match pattern"),
    ("metrics.enabled", True, "'enabled' not allowed"),
    ("metrics.grafanaDashboard.labels", {"grafana_dashboard": 1}, "want string"),
    ("service.port", 0, "minimum"),
    ("service.type", "LoadBalancer", "'type' not allowed"),
    ("podDisruptionBudget.maxUnavailable", "half", "does not match pattern"),
    ("networkPolicy.metricsFrom", [{}], "minProperties"),
    ("networkPolicy.apiServerPorts", [], "minItems"),
    ("networkPolicy.apiServerPorts", [0], "minimum"),
]


def test_lint_finds_nothing(helm: Helm) -> None:
    for values in ({}, EVERYTHING):
        said = helm.run("lint", "--strict", "--kube-version", KUBERNETES, str(CHART), values=values)
        assert "1 chart(s) linted, 0 chart(s) failed" in said
        assert "[WARNING]" not in said
        assert "[ERROR]" not in said


@pytest.mark.parametrize("values", ACCEPTED, ids=lambda values: " ".join(values)[:40] or "nothing")
def test_values_that_make_sense_are_accepted(helm: Helm, values: Values) -> None:
    helm.template(values)


@pytest.mark.parametrize(
    ("path", "value", "words"), REFUSED, ids=[f"{path}={value!r}"[:60] for path, value, _ in REFUSED]
)
def test_values_that_make_no_sense_are_refused(helm: Helm, path: str, value: Any, words: str) -> None:
    with pytest.raises(HelmError) as refusal:
        helm.template(at(path, value))
    said = str(refusal.value)
    assert words in said
    assert path.rpartition(".")[2] in said, f"the refusal does not name {path}"


@pytest.mark.parametrize("version", ["1.28.9", "1.25.0"])
def test_a_cluster_that_is_too_old_is_refused(helm: Helm, version: str) -> None:
    with pytest.raises(HelmError, match="requires kubeVersion"):
        helm.run("template", "x", str(CHART), "--kube-version", version)


@pytest.mark.parametrize("version", ["1.29.0", "1.34.4-eks-1a2b3c", "1.37.0"])
def test_a_cluster_that_is_new_enough_is_accepted(helm: Helm, version: str) -> None:
    helm.run("template", "x", str(CHART), "--kube-version", version)


def test_the_chart_packs_and_installs_from_its_package(helm: Helm, tmp_path: Path) -> None:
    helm.run("package", str(CHART), "--destination", str(tmp_path))
    (package,) = tmp_path.glob("*.tgz")
    assert helm.template(chart=package) == helm.template()


def test_the_chart_can_be_part_of_another(helm: Helm, tmp_path: Path) -> None:
    parent = tmp_path / "platform"
    (parent / "charts").mkdir(parents=True)
    shutil.copytree(CHART, parent / "charts" / "rltraining-operator")
    (parent / "Chart.yaml").write_text("apiVersion: v2\nname: platform\nversion: 1.0.0\n")
    values = {"rltraining-operator": {"replicaCount": 2}, "global": {"team": "learning"}}
    rendered = helm.render(values, release="platform", chart=parent)
    assert rendered.one("Deployment")["metadata"]["name"] == "platform-rltraining-operator"
    assert rendered.one("Deployment")["spec"]["replicas"] == 2
