"""The programs that the chart's tests run, and an API server of their own."""

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
    """Where the programs are that the tests compile: their versions, and so their words, are known."""
    places = Places()
    if not programs.built(places) and programs.go() is None:
        pytest.skip("helm cannot be compiled here: there is no Go toolchain")
    return programs.build(places)


@pytest.fixture(scope="session")
def helm(built: Path) -> Helm:
    """helm, with no cluster to talk to."""
    return Helm(built / "helm")


@pytest.fixture(scope="session")
def defaults(helm: Helm) -> Rendered:
    """The objects that are installed with no values."""
    return helm.render()


@pytest.fixture(scope="session")
def everything(helm: Helm) -> Rendered:
    """The objects that are installed with the values that turn on everything."""
    return helm.render(EVERYTHING)


@pytest.fixture(scope="session")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """kubectl with an API server that is only for these tests, whatever KUBECONFIG says: they install and delete the
    definition, and with it all jobs."""
    cluster = up_local("api", Places(run=tmp_path_factory.mktemp("cluster")))
    yield Kubectl(cluster)
    down(cluster)
