"""A release's life in a real API server: install, upgrade, uninstall, reinstall, and two side by side.

No pod runs. Other tests cover the operator's work.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from helm import CHART, EVERYTHING, NAMESPACE, ROOT, Helm, HelmError, Values
from kubectl import Kubectl

CRD = "customresourcedefinitions/rltrainingjobs.rltraining.dev"
JOB = ROOT / "examples" / "cartpole-impala.yaml"
SELECTOR = "app.kubernetes.io/name=rltraining-operator"
KEY = "rl-rltraining-operator-key"


class Releases:
    """Runs helm on the cluster, and uninstalls all releases at the end."""

    def __init__(self, helm: Helm, kubectl: Kubectl) -> None:
        self._helm, self._kubectl = replace(helm, kubeconfig=kubectl.kubeconfig), kubectl
        self._installed: set[tuple[str, str]] = set()
        self._namespaces: set[str] = set()

    def namespace(self, name: str) -> None:
        self._kubectl.make_namespace(name, restricted=True)
        self._namespaces.add(name)

    def install(
        self, name: str, namespace: str, values: Values | None = None, *options: str, chart: Path = CHART
    ) -> str:
        """Installs or upgrades a release. Returns helm's output. Raises `HelmError`."""
        self._installed.add((name, namespace))
        command = ["upgrade", "--install", name, str(chart), "--namespace", namespace, *options]
        return self._helm.run(*command, values=values or {})

    def uninstall(self, name: str, namespace: str) -> str:
        self._installed.discard((name, namespace))
        return self._helm.run("uninstall", name, "--namespace", namespace, "--ignore-not-found")

    def clean(self) -> None:
        for name, namespace in sorted(self._installed):
            self.uninstall(name, namespace)
        self._kubectl.run("delete", CRD, "--ignore-not-found")
        for name in self._namespaces:
            self._kubectl.run("delete", "namespace", name, "--wait=false")


@pytest.fixture
def releases(helm: Helm, kubectl: Kubectl) -> Iterator[Releases]:
    made = Releases(helm, kubectl)
    yield made
    made.clean()


def test_the_operators_pods_are_admitted_where_only_restricted_ones_are(
    releases: Releases, kubectl: Kubectl
) -> None:
    releases.namespace("strict")
    said = releases.install("rl", "strict", {"replicaCount": 2})
    assert "A first job:" in said
    kubectl.run("wait", "--for=create", "pods", "-l", SELECTOR, "-n", "strict", "--timeout=60s")
    condition = "--for=jsonpath={.status.replicas}=2"
    kubectl.run("wait", condition, "deployment/rl-rltraining-operator", "-n", "strict", "--timeout=60s")
    kubectl.run("wait", "--for=condition=Established", CRD, "--timeout=60s")
    kubectl.run("apply", "-f", str(JOB), "-n", "strict")


def test_an_upgrade_brings_the_new_definition(releases: Releases, kubectl: Kubectl, tmp_path: Path) -> None:
    """helm never upgrades files in a chart's crds/, so this definition is a template."""
    old = tmp_path / "chart"
    shutil.copytree(CHART, old)
    definition = old / "files" / "crd.yaml"
    written = yaml.safe_load(definition.read_text())
    [version] = written["spec"]["versions"]
    columns = version["additionalPrinterColumns"]
    version["additionalPrinterColumns"] = [column for column in columns if column["name"] != "Algorithm"]
    assert len(version["additionalPrinterColumns"]) == len(columns) - 1
    definition.write_text(yaml.safe_dump(written))
    releases.namespace("upgraded")
    releases.install("rl", "upgraded", chart=old)
    assert "Algorithm" not in _columns(kubectl)
    kubectl.run("wait", "--for=condition=Established", CRD, "--timeout=60s")
    kubectl.run("apply", "-f", str(JOB), "-n", "upgraded")
    releases.install("rl", "upgraded")
    assert "Algorithm" in _columns(kubectl)
    assert kubectl.names("rltrainingjobs", "-n", "upgraded") == {"cartpole"}


def test_definition_and_jobs_stay_when_the_release_goes(releases: Releases, kubectl: Kubectl) -> None:
    releases.namespace("left")
    releases.install("rl", "left")
    kubectl.run("wait", "--for=condition=Established", CRD, "--timeout=60s")
    kubectl.run("apply", "-f", str(JOB), "-n", "left")
    said = releases.uninstall("rl", "left")
    assert "kept due to the resource policy" in said
    assert kubectl.names("rltrainingjobs", "-n", "left") == {"cartpole"}
    kinds = "deployments,services,configmaps,serviceaccounts,roles,rolebindings"
    assert kubectl.names(kinds, "-n", "left", "-l", SELECTOR) == set()
    assert kubectl.names("clusterroles,clusterrolebindings", "-l", SELECTOR) == set()
    assert kubectl.names("secrets", "-n", "left", "-l", SELECTOR) == {KEY}, "jobs that run hold tokens of it"

    kubectl.run("patch", "secret", KEY, "-n", "left", "--type=merge", '--patch={"data": {"key": "a2V5"}}')
    releases.install("rl", "left")  # the same release adopts them again
    assert kubectl.run("get", "secret", KEY, "-n", "left", "-o", "jsonpath={.data.key}") == "a2V5"


def test_another_release_adopts_the_definition_if_it_is_asked_to(
    releases: Releases, kubectl: Kubectl
) -> None:
    releases.namespace("adopted")
    releases.install("rl", "adopted")
    kubectl.run("wait", "--for=condition=Established", CRD, "--timeout=60s")
    kubectl.run("apply", "-f", str(JOB), "-n", "adopted")
    releases.install("rl", "adopted", {"crds": {"install": False}})
    releases.uninstall("rl", "adopted")
    with pytest.raises(HelmError, match=r"rltrainingjobs\.rltraining\.dev.*cannot be imported"):
        releases.install("other", "adopted")
    releases.install("other", "adopted", {}, "--take-ownership")
    assert kubectl.names("rltrainingjobs", "-n", "adopted") == {"cartpole"}


def test_two_releases_keep_to_their_namespaces(releases: Releases, kubectl: Kubectl) -> None:
    for name in ("one", "two"):
        releases.namespace(name)
    releases.install("rltraining-operator", "one", {"watchNamespaces": ["one"]})
    second: Values = {"watchNamespaces": ["two"], "crds": {"install": False}, "rbac": {"userRoles": False}}
    releases.install("rltraining-operator", "two", second)
    for mine, theirs in (("one", "two"), ("two", "one")):
        account = f"system:serviceaccount:{mine}:rltraining-operator"
        for verb, resource in (("create", "pods"), ("patch", "rltraining.dev:rltrainingjobs/status")):
            _may(kubectl, account, verb, resource, mine)
            assert not kubectl.may(account, verb, resource, theirs), (
                f"{mine}'s operator may {verb} {resource}"
            )
        assert not kubectl.may(account, "list", "rltraining.dev:rltrainingjobs")


def test_the_api_server_takes_every_object(releases: Releases, helm: Helm, kubectl: Kubectl) -> None:
    """Leaves out the objects of prometheus-operator, since their kinds are not installed."""
    for name in (NAMESPACE, "team-a", "team-b"):
        releases.namespace(name)
    for values in ({}, {"watchNamespaces": [], "strategy": {"type": "Recreate"}}):
        rendered = helm.render({**EVERYTHING, **values}).objects
        objects = [each for each in rendered if "monitoring.coreos.com" not in each["apiVersion"]]
        said = kubectl.run("apply", "--dry-run=server", "--validate=strict", "-f", "-", objects=objects)
        assert said.count("created (server dry run)") == len(objects), said


def test_the_operator_may_not_look_around(releases: Releases, kubectl: Kubectl) -> None:
    releases.namespace("least")
    releases.install("rl", "least")
    account = "system:serviceaccount:least:rl-rltraining-operator"
    _may(kubectl, account, "create", "pods", "default")
    _may(kubectl, account, "update", "coordination.k8s.io:leases=rl-rltraining-operator", "least")
    _may(kubectl, account, "get", f"secrets={KEY}", "least")
    for verb in ("get", "list", "patch", "update"):
        assert not kubectl.may(account, verb, "secrets", "least"), f"the operator may {verb} secrets"
    for verb, resource in (
        ("get", "secrets"),
        ("list", "secrets"),
        ("watch", "secrets"),
        ("patch", "secrets"),  # the response would show them
        ("update", "secrets"),
        ("delete", "secrets"),
        ("create", "pods/exec"),
        ("update", "rltraining.dev:rltrainingjobs"),
        ("list", "nodes"),
        ("list", "namespaces"),
        ("create", "rbac.authorization.k8s.io:roles"),
        ("update", "coordination.k8s.io:leases=kube-scheduler"),
    ):
        assert not kubectl.may(account, verb, resource, "default"), f"the operator may {verb} {resource}"


def test_people_get_jobs_with_the_clusters_own_roles(releases: Releases, kubectl: Kubectl) -> None:
    releases.namespace("people")
    releases.install("rl", "people")
    for role in ("view", "edit", "admin"):
        kubectl.run(
            "create", "rolebinding", role, f"--clusterrole={role}", f"--user={role}er", "-n", "people"
        )
    jobs = "rltraining.dev:rltrainingjobs"
    for role in ("view", "edit", "admin"):
        _may(kubectl, f"{role}er", "watch", jobs, "people")
        assert not kubectl.may(f"{role}er", "watch", jobs, "default")
        assert not kubectl.may(f"{role}er", "patch", f"{jobs}/status", "people")
    for role in ("edit", "admin"):
        for verb, resource in (("create", jobs), ("delete", jobs), ("patch", f"{jobs}/scale")):
            _may(kubectl, f"{role}er", verb, resource, "people")
            assert not kubectl.may("viewer", verb, resource, "people")


def _may(kubectl: Kubectl, who: str, verb: str, resource: str, namespace: str) -> None:
    """Waits until the API server has aggregated roles and applied bindings."""
    for _ in range(100):
        if kubectl.may(who, verb, resource, namespace):
            return
        time.sleep(0.3)
    pytest.fail(f"{who} may not {verb} {resource} in {namespace}")


def _columns(kubectl: Kubectl) -> set[str]:
    (version,) = kubectl.get(CRD)["spec"]["versions"]
    return {column["name"] for column in version["additionalPrinterColumns"]}
