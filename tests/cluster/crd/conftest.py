"""The CustomResourceDefinition on an API server, and a namespace to try it in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from rltraining_api.crd import FILE_NAME
from rltraining_api.names import CRD_NAME, KIND
from verdicts import Server

from tests.cluster.api import Cluster

NAMESPACE = "rltraining-crd-tests"
DEFINITION = Path(__file__).parents[3] / "crds" / FILE_NAME


@pytest.fixture(scope="session")
def definition(api_server: Cluster) -> Iterator[Path]:
    """Applies the definition and yields its file. Deletes a definition that did not exist before."""
    existed = CRD_NAME in api_server.kubectl("get", "crd", "-o", "name")
    api_server.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(DEFINITION))
    api_server.await_definition(CRD_NAME, KIND)
    yield DEFINITION
    if not existed:
        api_server.kubectl("delete", "crd", CRD_NAME)


@pytest.fixture(scope="session")
def namespace(api_server: Cluster, definition: Path) -> Iterator[str]:
    """A namespace that is deleted after the tests."""
    made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    api_server.kubectl("apply", "-f", "-", stdin=json.dumps(made))
    yield NAMESPACE
    api_server.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


@pytest.fixture(scope="session")
def server(api_server: Cluster, namespace: str) -> Server:
    """A client of the API server that does not need kubectl."""
    return Server(api_server.kubeconfig, namespace)
