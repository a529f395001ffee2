"""Values that the chart accepts beyond the other tests' values, and values that it refuses, with the messages."""

from __future__ import annotations

import json
import re
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
    at("global", {"anything": 1}),
    at("image", {"registry": "localhost:5000", "tag": "1.2.3-rc.1", "pullPolicy": "Never"}),
    at("image.repository", "team/learning/rltraining-operator"),
    at("replicaCount", 0),
    at("jobs.rpcPorts", "1024-65535"),
    at("jobs.networkPolicy.prometheus.podSelector", {}),
    at("jobs.resources.sampler", {"requests": {"cpu": 0.5, "memory": None}, "limits": {"nvidia.com/gpu": 1}}),
    at("jobs.resources", None),
    at("resources.limits", {"cpu": 2, "memory": "1Gi"}),
    at("resources.limits.memory", None),
    at("metrics.serviceMonitor.interval", "500ms"),
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
    ("imagePullSecrets", [{"secret": "registry"}], "'secret' not allowed"),
    ("fullnameOverride", "Rl_Training", "does not match pattern"),
    ("fullnameOverride", "x" * 64, "maxLength"),
    ("watchNamespaces", "team-a", "want array"),
    ("watchNamespaces", ["Team_A"], "does not match pattern"),
    ("watchNamespaces", ["a", "a"], "items at 0 and 1 are equal"),
    ("replicaCount", -1, "minimum"),
    ("replicaCount", 1.5, "want integer"),
    ("leaderElection.leaseSeconds", 1, "minimum"),
    ("operator.httpPort", 80, "minimum"),
    ("log.level", "verbose", "must be one of"),
    ("jobs.networkPolicy", False, "want object"),
    ("jobs.networkPolicy.prometheus", {"ipBlock": {}}, "'ipBlock' not allowed"),
    ("jobs.rpcPorts", "20000:29999", "does not match pattern"),
    ("jobs.resources", {"trainer": {}}, "'trainer' not allowed"),
    ("jobs.resources.learner", {"cpu": "1"}, "'cpu' not allowed"),
    ("jobs.nodeSelector", {"pool": True}, "got boolean, want string"),
    ("jobs.tolerations", {"key": "gpu"}, "want array"),
    ("serviceAccount.name", "a b", "does not match pattern"),
    ("podLabels", {"team": "a b"}, "does not match pattern"),
    ("resources.limits", {"memory": ["1Gi"]}, "got array, want"),
    ("affinity", {"nodes": {}}, "'nodes' not allowed"),
    ("topologySpreadConstraints", [{"maxSkew": 1}], "missing properties"),
    ("metrics.serviceMonitor.interval", "30", "does not match pattern"),
    ("podDisruptionBudget.maxUnavailable", "half", "does not match pattern"),
    ("networkPolicy.metricsFrom", [{}], "minProperties"),
    ("networkPolicy.apiServerPorts", [], "minItems"),
]
"""Refused by the schema."""

FAILING: list[tuple[str, Any, str]] = [
    ("leaderElection.renewSeconds", 10, "must be less than leaseSeconds"),
    ("leaderElection.retrySeconds", 7, "must be less than renewSeconds"),
    ("jobs.rpcPorts", "29999-20000", "must be first-last"),
    ("jobs.rpcPorts", "20000-99999", "must be first-last"),
]
"""Refused by a template, at the first that fails."""


def part_of_another(folder: Path, *aliases: str) -> Path:
    """Makes a chart that contains ours once under each alias: helm then checks many values in one start."""
    parent = folder / "parent"
    shutil.copytree(CHART, parent / "charts" / CHART.name)
    parts = [{"name": CHART.name, "version": "*", "alias": alias} for alias in aliases]
    chart = {"apiVersion": "v2", "name": "parent", "version": "1.0.0", "dependencies": parts}
    (parent / "Chart.yaml").write_text(json.dumps(chart))
    return parent


def test_lint_finds_nothing(helm: Helm) -> None:
    for values in ({}, EVERYTHING):
        said = helm.run("lint", "--strict", "--kube-version", KUBERNETES, str(CHART), values=values)
        assert "1 chart(s) linted, 0 chart(s) failed" in said
        assert "[WARNING]" not in said
        assert "[ERROR]" not in said


def test_values_that_make_sense_are_accepted(helm: Helm, tmp_path: Path) -> None:
    values = {f"case-{number}": values for number, values in enumerate(ACCEPTED)}
    helm.template(values, chart=part_of_another(tmp_path, *values))


def test_values_that_make_no_sense_are_refused(helm: Helm, tmp_path: Path) -> None:
    values = {f"case-{number}": at(path, value) for number, (path, value, _) in enumerate(REFUSED)}
    with pytest.raises(HelmError) as refusal:
        helm.template(values, chart=part_of_another(tmp_path, *values))
    _, *parts = re.split(r"^(case-\d+):$", str(refusal.value), flags=re.MULTILINE)
    said = dict(zip(parts[::2], parts[1::2], strict=True))
    for case, (path, value, words) in zip(values, REFUSED, strict=True):
        assert case in said, f"{path}={value} was accepted"
        assert words in said[case]
        assert path.rpartition(".")[2] in said[case], "the refusal does not name the value"


@pytest.mark.parametrize(("path", "value", "words"), FAILING)
def test_values_that_contradict_each_other_are_refused(helm: Helm, path: str, value: Any, words: str) -> None:
    with pytest.raises(HelmError, match=rf"{path}.*{words}"):
        helm.template(at(path, value))


def test_a_cluster_that_is_too_old_is_refused(helm: Helm) -> None:
    for version in ("1.29.0", "1.34.4-eks-1a2b3c"):
        helm.run("template", "x", str(CHART), "--kube-version", version)
    with pytest.raises(HelmError, match="requires kubeVersion"):
        helm.run("template", "x", str(CHART), "--kube-version", "1.28.9")


def test_the_chart_packs_and_installs_from_its_package(helm: Helm, tmp_path: Path) -> None:
    helm.run("package", str(CHART), "--destination", str(tmp_path))
    (package,) = tmp_path.glob("*.tgz")
    assert helm.template(chart=package) == helm.template()


def test_the_chart_can_be_part_of_another(helm: Helm, tmp_path: Path) -> None:
    values = {"rl": {"replicaCount": 2}, "global": {"team": "learning"}}
    rendered = helm.render(values, release="platform", chart=part_of_another(tmp_path, "rl"))
    assert rendered.one("Deployment")["metadata"]["name"] == "platform-rl"
    assert rendered.one("Deployment")["spec"]["replicas"] == 2
