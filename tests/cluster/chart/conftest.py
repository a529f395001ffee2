"""The programs that the chart's tests run, and a separate API server for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from helm import EVERYTHING, Helm, Rendered
from kubectl import Kubectl

from tests.cluster.api import Places, down, up_local
from tests.local_kubernetes import programs


@pytest.fixture(scope="session")
def built() -> Path:
    """Returns the folder of the compiled programs. Their versions, and thus messages, are known."""
    places = Places()
    if not programs.built(places) and programs.go() is None:
        pytest.skip("helm cannot be compiled here: there is no Go toolchain")
    return programs.build(places)


@pytest.fixture(scope="session")
def helm(built: Path) -> Helm:
    """helm without a cluster."""
    return Helm(built / "helm")


@pytest.fixture(scope="session")
def defaults(helm: Helm) -> Rendered:
    """The objects of an installation without values."""
    return helm.render()


@pytest.fixture(scope="session")
def everything(helm: Helm) -> Rendered:
    """The objects of an installation with the values that enable every option."""
    return helm.render(EVERYTHING)


@pytest.fixture(scope="session")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """kubectl with an API server for these tests only, regardless of KUBECONFIG.

    The tests install and delete the definition, and deleting the definition deletes all jobs.
    """
    cluster = up_local("api", Places(run=tmp_path_factory.mktemp("cluster")))
    yield Kubectl(cluster)
    down(cluster)
