"""The API server that most tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.api import Cluster, Places, down, up

SECONDS = 120
"""Default time limit of a test."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Applies the time limits to the tests alone, since the first fixture may have to compile Kubernetes."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            given = item.get_closest_marker("timeout")
            seconds = given.args[0] if given else SECONDS
            item.add_marker(pytest.mark.timeout(seconds, func_only=True), append=False)


@pytest.fixture(scope="session")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The API server of the existing cluster, or a local one that stops after the tests.

    The local API server is separate from the cluster that runs pods, so that both kinds of tests can
    run at the same time.
    """
    cluster = up("api", Places(run=tmp_path_factory.mktemp("cluster") / "run"))
    yield cluster
    down(cluster)
