"""Effect of each chart option on the rendered objects."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from helm import APP_VERSION, CHART, EVERYTHING, NAMESPACE, RELEASE, ROOT, VERSION, Helm, Rendered

EVERYBODY = "system:serviceaccounts"
"""The group that may read the Lease of the release."""


def test_what_is_not_necessary_is_turned_on_by_values(defaults: Rendered, everything: Rendered) -> None:
    extra = {"PodDisruptionBudget", "PodMonitor", "PrometheusRule", "ServiceMonitor"}
    assert everything.kinds() - defaults.kinds() == extra


def test_every_object_is_labelled_and_in_its_namespace(everything: Rendered) -> None:
    labels = {
        "app.kubernetes.io/name": "rltraining-operator",
        "app.kubernetes.io/instance": RELEASE,
        "app.kubernetes.io/managed-by": "Helm",
        "helm.sh/chart": f"rltraining-operator-{VERSION}",
    }
    for each in everything.objects:
        assert labels.items() <= each["metadata"]["labels"].items(), each["metadata"]
        cluster_wide = each["kind"] in {"CustomResourceDefinition", "ClusterRole"}
        assert ("namespace" in each["metadata"]) != cluster_wide, each["metadata"]


@pytest.mark.parametrize(
    ("release", "values", "name"),
    [
        ("rltraining-operator", {}, "rltraining-operator"),
        ("rl", {}, "rl-rltraining-operator"),
        ("my-rltraining-operator", {}, "my-rltraining-operator"),
        ("rl", {"fullnameOverride": "learning"}, "learning"),
        ("r" * 53, {}, "r" * 53 + "-rltrainin"),
    ],
)
def test_names_come_from_the_release(helm: Helm, release: str, values: dict[str, Any], name: str) -> None:
    rendered = helm.render(values, release=release)
    for kind in ("Deployment", "Service", "ServiceAccount", "ConfigMap"):
        assert rendered.one(kind)["metadata"]["name"] == name
    assert rendered.config["leaderElection"]["leaseName"] == name


@pytest.mark.parametrize("name", ["off", "1e3"])
def test_names_that_look_like_something_else_stay_names(helm: Helm, name: str) -> None:
    values = {**EVERYTHING, "fullnameOverride": name, "watchNamespaces": [name], "priorityClassName": name}
    values |= {"serviceAccount": {"name": name}, "imagePullSecrets": [{"name": name}]}
    values["jobs"] = {
        "priorityClassName": name,
        "runtimeClassName": name,
        "imagePullSecrets": [{"name": name}],
    }
    rendered = helm.render(values, release=name, namespace=name)
    for each in rendered.objects:
        metadata = each["metadata"]
        assert isinstance(metadata["name"], str), each["kind"]
        assert metadata.get("namespace", name) == name, each["kind"]
        assert metadata["labels"]["app.kubernetes.io/instance"] == name, each["kind"]
        for subject in each.get("subjects", ()):
            expected = (name, name) if subject["kind"] == "ServiceAccount" else (EVERYBODY, None)
            assert (subject["name"], subject.get("namespace")) == expected
    assert rendered.one("Deployment")["spec"]["selector"]["matchLabels"]["app.kubernetes.io/instance"] == name
    assert rendered.pod["serviceAccountName"] == rendered.pod["priorityClassName"] == name
    assert rendered.pod["volumes"][0]["configMap"]["name"] == name
    assert rendered.config["namespaces"] == rendered.config["imagePullSecrets"] == [name]
    assert rendered.config["priorityClass"] == rendered.config["runtimeClass"] == name
    assert rendered.config["leaderElection"]["leaseName"] == name
    assert rendered.config["leaderElection"]["leaseNamespace"] == name


def test_samplers_may_have_a_priority_class_below_other_pods(helm: Helm, defaults: Rendered) -> None:
    created = helm.render({"jobs": {"samplerPriorityClass": {"create": True}}})
    found = created.one("PriorityClass")
    assert found["value"] == -10
    assert found["metadata"]["name"] == created.config["samplerPriorityClass"]
    assert created.config["samplerPriorityClass"].endswith("-sampler")
    named = helm.render({"jobs": {"samplerPriorityClass": {"name": "low"}}})
    assert named.config["samplerPriorityClass"] == "low"
    assert defaults.config["samplerPriorityClass"] == ""
    assert "PriorityClass" not in named.kinds() | defaults.kinds()


def test_the_definition_is_whole_and_stays_at_uninstall(defaults: Rendered) -> None:
    ours = defaults.one("CustomResourceDefinition")
    source = yaml.safe_load((ROOT / "crds" / "rltraining.dev_rltrainingjobs.yaml").read_text())
    assert ours["spec"] == source["spec"]
    assert ours["metadata"]["name"] == source["metadata"]["name"]
    assert ours["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_the_definition_can_be_left_out_or_annotated(helm: Helm, everything: Rendered) -> None:
    assert "CustomResourceDefinition" not in helm.render({"crds": {"install": False}}).kinds()
    annotations = everything.one("CustomResourceDefinition")["metadata"]["annotations"]
    assert annotations == {"helm.sh/resource-policy": "keep", "team": "learning"}


def test_pods_cannot_write_to_their_image_and_have_resources(defaults: Rendered) -> None:
    """Pod Security requires neither. test_chart_release.py tests admission to a `restricted` namespace."""
    for pod in (defaults.pod, defaults.one("Pod")["spec"]):
        for container in pod["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert container["resources"]["requests"]
            assert container["resources"]["limits"]["memory"]


def test_a_change_of_the_settings_makes_new_pods(helm: Helm, defaults: Rendered) -> None:
    def checksum(rendered: Rendered) -> str:
        annotations = rendered.one("Deployment")["spec"]["template"]["metadata"]["annotations"]
        return annotations["checksum/config"]

    assert checksum(helm.render({"replicaCount": 2})) == checksum(defaults)
    assert checksum(helm.render({"log": {"level": "debug"}})) != checksum(defaults)


def test_probes_ask_the_port_that_is_served(helm: Helm) -> None:
    container = helm.render({"operator": {"httpPort": 9000}, "service": {"port": 80}}).container
    assert container["ports"] == [{"name": "http", "containerPort": 9000}]
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
    assert container["startupProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}


@pytest.mark.parametrize(
    ("image", "reference"),
    [
        ({}, f"rltraining-operator:{APP_VERSION}"),
        ({"tag": "main"}, "rltraining-operator:main"),
        (
            {"registry": "localhost:5000", "repository": "rl/operator"},
            f"localhost:5000/rl/operator:{APP_VERSION}",
        ),
        ({"tag": "main", "digest": f"sha256:{'a' * 64}"}, f"rltraining-operator@sha256:{'a' * 64}"),
    ],
)
def test_images_are_named_in_full(helm: Helm, image: dict[str, str], reference: str) -> None:
    trainer = {"repository": "rltraining-operator"} | image
    rendered = helm.render({"image": image, "trainerImage": trainer})
    assert rendered.container["image"] == rendered.config["trainerImage"] == reference
    assert rendered.one("Pod")["spec"]["containers"][0]["image"] == reference


def test_the_selector_does_not_change_with_the_version(defaults: Rendered) -> None:
    selector = defaults.one("Deployment")["spec"]["selector"]["matchLabels"]
    assert selector == {
        "app.kubernetes.io/name": "rltraining-operator",
        "app.kubernetes.io/instance": RELEASE,
        "app.kubernetes.io/component": "operator",
    }


def test_the_service_finds_the_operator_and_not_the_test(defaults: Rendered) -> None:
    service = defaults.one("Service")["spec"]
    selector = service["selector"].items()
    template = defaults.one("Deployment")["spec"]["template"]["metadata"]["labels"].items()
    assert selector <= template
    assert not selector <= defaults.one("Pod")["metadata"]["labels"].items()
    assert service["ports"] == [{"name": "http", "port": 8080, "targetPort": "http"}]


def test_what_is_said_of_pods_is_in_the_pods(everything: Rendered) -> None:
    pod, metadata = everything.pod, everything.one("Deployment")["spec"]["template"]["metadata"]
    for key in ("imagePullSecrets", "nodeSelector", "tolerations", "affinity", "priorityClassName"):
        assert pod[key] == EVERYTHING[key], key
    assert metadata["labels"]["team"] == "learning"
    assert metadata["annotations"]["team"] == "learning"
    assert {"name": "TZ", "value": "UTC"} in everything.container["env"]
    assert everything.container["args"][-1] == "--log-level=debug"
    assert everything.one("Deployment")["spec"]["replicas"] == 2


def test_a_constraint_of_spread_counts_the_operators_own_pods(helm: Helm, everything: Rendered) -> None:
    (spread,) = everything.pod["topologySpreadConstraints"]
    selector = everything.one("Deployment")["spec"]["selector"]
    assert spread == EVERYTHING["topologySpreadConstraints"][0] | {"labelSelector": selector}
    own = spread | {"labelSelector": {"matchLabels": {"a": "b"}}}
    (kept,) = helm.render({"topologySpreadConstraints": [own]}).pod["topologySpreadConstraints"]
    assert kept["labelSelector"]["matchLabels"]["a"] == "b"


@pytest.mark.parametrize(
    ("account", "name", "made"),
    [
        ({}, RELEASE, True),
        ({"name": "mine"}, "mine", True),
        ({"create": False, "name": "mine"}, "mine", False),
        ({"create": False}, "default", False),
    ],
)
def test_the_service_account(helm: Helm, account: dict[str, Any], name: str, made: bool) -> None:
    rendered = helm.render({"serviceAccount": account})
    assert rendered.pod["serviceAccountName"] == name
    assert [each["metadata"]["name"] for each in rendered.all("ServiceAccount")] == [name] * made
    bindings = rendered.all("RoleBinding") + rendered.all("ClusterRoleBinding")
    subject = {"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}
    others = [binding["subjects"] for binding in bindings if binding["subjects"][0]["name"] != EVERYBODY]
    assert others == [[subject]] * 2


def test_operator_pods_are_replaced_and_evicted_as_the_values_want(helm: Helm, defaults: Rendered) -> None:
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    assert defaults.one("Deployment")["spec"]["strategy"] == rolling
    rendered = helm.render(
        {"strategy": {"type": "Recreate"}, "podDisruptionBudget": {"enabled": True, "maxUnavailable": "50%"}}
    )
    assert rendered.one("Deployment")["spec"]["strategy"] == {"type": "Recreate"}
    budget = rendered.one("PodDisruptionBudget")["spec"]
    assert budget["maxUnavailable"] == "50%"
    assert budget["selector"] == rendered.one("Deployment")["spec"]["selector"]


def test_the_networkpolicy_lets_through_what_the_operator_needs(everything: Rendered) -> None:
    spec = everything.one("NetworkPolicy")["spec"]
    ports = [{(port["port"], port["protocol"]) for port in rule["ports"]} for rule in spec["egress"]]
    assert ports == [
        {(53, "UDP"), (53, "TCP")},
        {(443, "TCP"), (6443, "TCP")},
        {(8080, "TCP"), (8443, "TCP")},
    ]
    learners = spec["egress"][2]["to"][0]["podSelector"]["matchLabels"]
    assert learners == {
        "app.kubernetes.io/managed-by": "rltraining-operator",
        "rltraining.dev/role": "learner",
    }
    monitoring, test = spec["ingress"][0]["from"]
    assert monitoring == EVERYTHING["networkPolicy"]["metricsFrom"][0]
    assert test["podSelector"]["matchLabels"].items() <= everything.one("Pod")["metadata"]["labels"].items()


def test_by_default_the_networkpolicy_admits_nobody_but_the_test_and_does_not_limit_the_operator(
    helm: Helm, defaults: Rendered
) -> None:
    spec = defaults.one("NetworkPolicy")["spec"]
    assert spec["policyTypes"] == ["Ingress"]
    assert "egress" not in spec
    ((port,),) = (rule["ports"] for rule in spec["ingress"])
    assert port == {"port": "http", "protocol": "TCP"}
    (test,) = spec["ingress"][0]["from"]
    assert test["podSelector"]["matchLabels"].items() <= defaults.one("Pod")["metadata"]["labels"].items()
    assert "NetworkPolicy" not in helm.render({"networkPolicy": {"enabled": False}}).kinds()


def test_prometheus_and_grafana_get_what_they_look_for(everything: Rendered) -> None:
    monitor = everything.one("ServiceMonitor")
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert (
        monitor["spec"]["selector"]["matchLabels"].items()
        <= everything.one("Service")["metadata"]["labels"].items()
    )
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint == {"port": "http", "path": "/metrics", "interval": "30s", "honorLabels": True}
    pods = everything.one("PodMonitor")
    assert pods["metadata"]["labels"]["release"] == "prometheus"
    assert pods["spec"]["namespaceSelector"] == {"matchNames": ["team-a", "team-b"]}
    (endpoint,) = pods["spec"]["podMetricsEndpoints"]
    assert (endpoint["port"], endpoint["path"], endpoint["interval"]) == ("http", "/metrics", "30s")
    board = everything.one("ConfigMap", f"{RELEASE}-dashboard")
    assert board["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert board["metadata"]["annotations"] == {"folder": "Learning"}
    assert json.loads(board["data"]["rltraining.json"]) == json.loads(
        (CHART / "files" / "dashboard.json").read_text()
    )


def test_pods_of_all_namespaces_are_scraped_where_the_jobs_of_all_are_run(helm: Helm) -> None:
    monitor = helm.render({"metrics": {"podMonitor": {"enabled": True}}}).one("PodMonitor")
    assert monitor["spec"]["namespaceSelector"] == {"any": True}


def test_with_a_monitor_for_each_job_the_chart_has_none_of_its_own(helm: Helm) -> None:
    monitor = {"enabled": True, "perJob": True, "labels": {"release": "prometheus"}, "interval": "10s"}
    rendered = helm.render({"metrics": {"podMonitor": monitor}})
    assert "PodMonitor" not in rendered.kinds()
    config = yaml.safe_load(rendered.config_text)
    assert config["podMonitor"] == {"enabled": True, "interval": "10s", "labels": {"release": "prometheus"}}


def test_alerts_ask_for_the_job_that_prometheus_makes_of_the_service(helm: Helm) -> None:
    rendered = helm.render({"metrics": {"prometheusRule": {"enabled": True}}}, release="learning")
    rules = [rule for group in rendered.one("PrometheusRule")["spec"]["groups"] for rule in group["rules"]]
    service = rendered.one("Service")["metadata"]["name"]
    groups = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())["groups"]
    source = [rule for group in groups for rule in group["rules"]]
    wanted = [rule["expr"].replace('job="rltraining-operator"', f'job="{service}"') for rule in source]
    assert [rule["expr"] for rule in rules] == wanted
    assert [rule["annotations"] for rule in rules] == [rule["annotations"] for rule in source]
