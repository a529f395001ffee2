"""The values for production are accepted, and do what their comments promise."""

from __future__ import annotations

from pathlib import Path

import yaml
from helm import CHART, KUBERNETES, Helm
from test_chart_notes import notes

from charts.publish import publish

PRODUCTION = CHART / "values-production.yaml"
VALUES = yaml.safe_load(PRODUCTION.read_text())


def test_lint_accepts_the_file(helm: Helm) -> None:
    said = helm.run("lint", "--strict", "--kube-version", KUBERNETES, "--values", str(PRODUCTION), str(CHART))
    assert "0 chart(s) failed" in said
    assert "[WARNING]" not in said


def test_two_pods_survive_a_drain_and_the_loss_of_a_node(helm: Helm) -> None:
    rendered = helm.render(VALUES)
    assert rendered.one("Deployment")["spec"]["replicas"] == 2
    assert rendered.one("PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    keys = [spread["topologyKey"] for spread in rendered.pod["topologySpreadConstraints"]]
    assert keys == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
    assert rendered.pod["priorityClassName"] == "system-cluster-critical"


def test_an_upgrade_needs_no_room_for_a_third_pod(helm: Helm) -> None:
    strategy = helm.render(VALUES).one("Deployment")["spec"]["strategy"]
    assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}


def test_prometheus_is_admitted_and_everything_else_is_kept_out(helm: Helm) -> None:
    rendered = helm.render(VALUES)
    assert {"ServiceMonitor", "PodMonitor", "PrometheusRule"} <= rendered.kinds()
    policy = rendered.one("NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    monitoring = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    assert monitoring in policy["ingress"][0]["from"]
    assert rendered.config["networkPolicy"]["prometheus"] == monitoring


def test_the_operator_has_rights_on_jobs_in_the_given_namespaces_only(helm: Helm) -> None:
    rendered = helm.render(VALUES)
    assert not rendered.all("ClusterRoleBinding")
    assert {role["metadata"]["namespace"] for role in rendered.all("Role")} == {"team-a", "rltraining-system"}


def test_the_notes_have_no_warning(helm: Helm, tmp_path: Path) -> None:
    said = notes(helm, tmp_path, VALUES)
    assert "in team-a" in said
    assert "WARNING" not in said
    assert "podDisruptionBudget" not in said


def test_the_published_chart_is_linted_and_packed_and_shows_its_readme(helm: Helm, tmp_path: Path) -> None:
    folder = publish("registry.example.com/team", "https://example.com/rltraining", tmp_path / "published")
    said = helm.run("lint", "--strict", "--kube-version", KUBERNETES, str(folder))
    assert "[INFO]" not in said, "the icon is missing"
    assert "[WARNING]" not in said
    helm.run("package", str(folder), "--destination", str(tmp_path))
    (package,) = tmp_path.glob("*.tgz")
    assert helm.run("show", "readme", str(package)).strip() == (folder / "README.md").read_text().strip()
    assert helm.render(chart=package).container["image"].startswith("registry.example.com/team/")
