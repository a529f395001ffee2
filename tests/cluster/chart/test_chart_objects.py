"""What the chart renders is what Kubernetes takes: by its own schemas, and by its API server."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from helm import EVERYTHING, NAMESPACE, Helm, Rendered, Values
from kubectl import Kubectl
from openapi import write_schemas

from tests.cluster.api import ClusterError

MONITORING = {"ServiceMonitor", "PodMonitor", "PrometheusRule"}
"""Kinds of prometheus-operator: Kubernetes itself does not know them."""

VARIANTS: dict[str, Values] = {
    "defaults": {},
    "everything": EVERYTHING,
    "everything cluster-wide": {**EVERYTHING, "watchNamespaces": []},
    "recreate": {
        "strategy": {"type": "Recreate"},
        "podDisruptionBudget": {"enabled": True, "maxUnavailable": "50%"},
    },
}


@pytest.fixture(scope="module")
def schemas(
    helm: Helm, kubectl: Kubectl, everything: Rendered, tmp_path_factory: pytest.TempPathFactory
) -> str:
    objects = (*everything.objects, *helm.render().objects)
    kinds = {(each["apiVersion"], each["kind"]) for each in objects if each["kind"] not in MONITORING}
    return write_schemas(tmp_path_factory.mktemp("schemas"), kinds, kubectl.raw)


@pytest.fixture(scope="module")
def everything(helm: Helm) -> Rendered:
    return helm.render(EVERYTHING)


@pytest.fixture(scope="module")
def namespaces(kubectl: Kubectl) -> None:
    """Those of the release and of `watchNamespaces`, all as strict as can be."""
    for name in (NAMESPACE, "team-a", "team-b"):
        kubectl.make_namespace(name, restricted=True)


def conform(program: Path, schemas: str, text: str) -> list[dict[str, Any]]:
    """kubeconform's word on each object."""
    command = [
        str(program),
        "-schema-location",
        schemas,
        "-strict",
        "-ignore-missing-schemas",
        "-verbose",
        "-output=json",
    ]
    done = subprocess.run(
        [*command, "-"], input=text, capture_output=True, text=True, check=False, timeout=60
    )
    return json.loads(done.stdout)["resources"]


@pytest.mark.parametrize("values", VARIANTS.values(), ids=VARIANTS)
def test_every_object_conforms_to_its_schema(
    kubeconform: Path, schemas: str, helm: Helm, values: Values
) -> None:
    text = helm.template(values)
    found = conform(kubeconform, schemas, text)
    assert len(found) == len([each for each in yaml.safe_load_all(text) if each])
    skipped = {each["kind"] for each in found if each["status"] == "statusSkipped"}
    assert skipped <= MONITORING, "objects of these kinds were not looked at"
    wrong = [
        f"{each['kind']} {each['name']}: {each['msg']}" for each in found if each["status"] != "statusValid"
    ]
    assert [line for line in wrong if line.split()[0] not in MONITORING] == []


def test_the_schemas_do_find_what_is_wrong(kubeconform: Path, schemas: str, defaults: Rendered) -> None:
    deployment = json.loads(json.dumps(defaults.one("Deployment")))
    deployment["spec"]["template"]["spec"]["containers"][0]["resource"] = {}
    (found,) = conform(kubeconform, schemas, json.dumps(deployment))
    assert found["status"] == "statusInvalid"
    assert "resource" in found["msg"]


@pytest.mark.usefixtures("namespaces")
@pytest.mark.parametrize("values", VARIANTS.values(), ids=VARIANTS)
def test_the_api_server_would_take_every_object(kubectl: Kubectl, helm: Helm, values: Values) -> None:
    """The test pod among them: the namespace enforces "restricted"."""
    objects = [each for each in helm.render(values).objects if each["kind"] not in MONITORING]
    said = kubectl.run("apply", "--dry-run=server", "--validate=strict", "-f", "-", objects=objects)
    assert said.count("created (server dry run)") == len(objects), said


@pytest.mark.usefixtures("namespaces")
def test_the_namespaces_do_refuse_a_pod_that_is_not_restricted(kubectl: Kubectl, defaults: Rendered) -> None:
    pod = json.loads(json.dumps(defaults.one("Pod")))
    del pod["spec"]["containers"][0]["securityContext"]
    with pytest.raises(ClusterError, match='violates PodSecurity "restricted'):
        kubectl.run("apply", "--dry-run=server", "-f", "-", objects=[pod])
