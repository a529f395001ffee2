"""`make install-yaml` writes a manifest that installs the operator with kubectl alone."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import yaml
from helm import APP_VERSION, CHART, ROOT, Helm, Rendered
from kubectl import Kubectl


def make(helm: Helm, folder: Path, *variables: str) -> Path:
    """Runs the target. Returns the manifest."""
    command = ["make", "install-yaml", f"HELM={helm.program}", f"DIST={folder}", *variables]
    environment = {
        name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "TAG", "VALUES")
    }
    subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=True, timeout=100)
    assert [path.name for path in folder.iterdir()] == ["install.yaml"]
    return folder / "install.yaml"


def objects(manifest: Path) -> Rendered:
    return Rendered(tuple(filter(None, yaml.load_all(manifest.read_text(), yaml.CSafeLoader))))


def test_the_manifest_has_every_object_of_the_chart_and_the_namespace(
    helm: Helm, defaults: Rendered, tmp_path: Path
) -> None:
    rendered = objects(make(helm, tmp_path))
    assert rendered.objects[0]["kind"] == "Namespace", "kubectl applies the objects in this order"
    assert rendered.objects[0]["metadata"]["name"] == "rltraining-system"
    names = {(each["kind"], each["metadata"]["name"]) for each in rendered.objects[1:]}
    # The only Pod is that of `helm test`.
    assert names == {
        (each["kind"], each["metadata"]["name"]) for each in defaults.objects if each["kind"] != "Pod"
    }
    for each in rendered.objects:
        labels = each["metadata"]["labels"]
        assert "helm.sh/chart" not in labels
        assert labels.get("app.kubernetes.io/managed-by") != "Helm"
        assert each["metadata"].get("namespace", "rltraining-system") == "rltraining-system"
    source = yaml.load((ROOT / "crds/rltraining.dev_rltrainingjobs.yaml").read_text(), yaml.CSafeLoader)
    assert rendered.one("CustomResourceDefinition")["spec"] == source["spec"]


def test_variables_choose_images_and_values(helm: Helm, tmp_path: Path) -> None:
    values = f"VALUES={CHART / 'values-production.yaml'}"
    rendered = objects(make(helm, tmp_path, "IMAGE_PREFIX=registry.example.com/team/", "TAG=12", values))
    assert rendered.container["image"] == "registry.example.com/team/rltraining-operator:12"
    assert rendered.config["trainerImage"] == "registry.example.com/team/rltraining-trainer:12"
    assert rendered.one("Deployment")["spec"]["replicas"] == 2


def test_values_keep_their_own_images(helm: Helm, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text("image: {registry: registry.example.com/team}\n")
    (tmp_path / "dist").mkdir()
    rendered = objects(make(helm, tmp_path / "dist", f"VALUES={values}"))
    assert rendered.container["image"] == f"registry.example.com/team/rltraining-operator:{APP_VERSION}"


def test_kubectl_applies_the_manifest(helm: Helm, kubectl: Kubectl, tmp_path: Path) -> None:
    manifest = str(make(helm, tmp_path, "NAMESPACE=static"))
    try:
        for _ in range(2):  # the second time is an upgrade
            kubectl.run("apply", "--server-side", "--validate=strict", "-f", manifest)
        kubectl.run(
            "wait", "--for=condition=Established", "crd/rltrainingjobs.rltraining.dev", "--timeout=60s"
        )
        assert kubectl.names("deployments", "-n", "static") == {"rltraining-operator"}
        assert kubectl.names("clusterrolebindings", "-l", "app.kubernetes.io/part-of=rltraining")
    finally:
        kubectl.run("delete", "--ignore-not-found", "--wait=false", "-f", manifest)
