"""What every test against a real API server begins with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import existing
from tests.cluster.api import Cluster, Places, down, requirements, up

SECONDS = 120
"""Longest time of a test that does not say so itself."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test may wait until Kubernetes is compiled and up: that is not the test's own time."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            given = item.get_closest_marker("timeout")
            seconds = given.args[0] if given else SECONDS
            item.add_marker(pytest.mark.timeout(seconds, func_only=True), append=False)


@pytest.fixture(scope="session")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """An API server: of the cluster that KUBECONFIG names, or of one of our own, which ends with the tests. It is not the
    one that runs pods: what tests do to that one they may do at the same time."""
    places = Places(run=tmp_path_factory.mktemp("cluster") / "run")
    if existing.kubeconfig(places) is None and (reason := requirements(places)["api"]):
        pytest.skip(f"no API server: {reason}")
    yield up("api", places=places)
    if existing.kubeconfig(places) is None:
        down(places)
