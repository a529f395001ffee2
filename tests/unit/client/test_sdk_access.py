"""Selection of the cluster."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from fake_api import FAST, kubeconfig_for
from rltraining import ClusterUnreachableError, RLTrainingClient
from rltraining.sdk.access import find_access


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hides every cluster."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


def write(path: Path, config: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(config if isinstance(config, str) else yaml.safe_dump(config))
    return path


def test_a_kubeconfig_that_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "named", kubeconfig_for("https://10.0.0.1:6443", namespace="team"))
    access = find_access(kubeconfig=path)
    assert (access.namespace, access.configuration.host) == ("team", "https://10.0.0.1:6443")
    assert access.description == f"context here of {path} (https://10.0.0.1:6443)"
    assert RLTrainingClient(kubeconfig=path).namespace == "team"
    assert RLTrainingClient("other", "here", str(path)).namespace == "other"
    write(tmp_path / "home/.kube/config", kubeconfig_for("https://10.0.0.1:6443"))
    access = find_access()
    assert access.description == "context here of ~/.kube/config (https://10.0.0.1:6443)"
    assert access.namespace == "default"


def test_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = kubeconfig_for("https://one"), kubeconfig_for("https://two", namespace="two")
    for group in ("clusters", "contexts", "users"):
        second[group][0]["name"] = "there"
    second["contexts"][0]["context"] |= {"cluster": "there", "user": "there"}
    files = [write(tmp_path / "a", first), tmp_path / "missing", write(tmp_path / "b", second)]
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(map(str, files)))
    assert find_access().configuration.host == "https://one"
    access = find_access("there")
    assert (access.configuration.host, access.namespace) == ("https://two", "two")


def test_a_service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kubernetes.config import incluster_config

    account = tmp_path / "account"
    for name, text in {"token": "secret", "ca.crt": "certificate", "namespace": "team\n"}.items():
        write(account / name, text)
    monkeypatch.setattr("rltraining.sdk.access.SERVICE_ACCOUNT", account)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(account / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(account / "ca.crt"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    access = find_access()
    assert (access.namespace, access.configuration.host) == ("team", "https://10.96.0.1:443")
    assert "the pod's service account" in access.description
    (account / "token").unlink()
    with pytest.raises(
        ClusterUnreachableError, match="the pod's service account cannot be used: Service token"
    ):
        find_access()


def test_no_cluster_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        ClusterUnreachableError, match=r"^no cluster is known: KUBECONFIG is not set, ~/\.kube/config"
    ):
        find_access()
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    with pytest.raises(ClusterUnreachableError, match="KUBECONFIG names no file that exists"):
        find_access()


@pytest.mark.parametrize(
    ("config", "context", "words"),
    [
        (None, None, "there is no such file"),
        (kubeconfig_for("https://one"), "nope", "context nope is not in kubeconfig .*: it has here"),
        ("{", None, "cannot be used"),
        ("", None, "cannot be used"),
        (kubeconfig_for("https://one") | {"clusters": []}, None, "cannot be used"),
    ],
)
def test_a_kubeconfig_that_does_not_help(
    config: Any, context: str | None, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "config"
    if config is not None:
        write(path, config)
    with pytest.raises(ClusterUnreachableError, match=words) as caught:
        find_access(context, path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_cluster_that_is_not_there(tmp_path: Path) -> None:
    """Port 9 of this machine is closed."""
    path = write(tmp_path / "config", kubeconfig_for("http://127.0.0.1:9"))
    with pytest.raises(ClusterUnreachableError) as caught:
        RLTrainingClient(kubeconfig=path, timing=FAST).list()
    assert str(caught.value) == (
        f"the cluster of context here of {path} (http://127.0.0.1:9) does not answer: Connection refused: "
        "check that it runs, and that --context and --kubeconfig name the right one"
    )
