"""The operator as its users install it, on nodes that run pods, and tests that run at the same time."""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future
from pathlib import Path
from threading import Thread

import pytest
from jobs import Team

from tests.cluster.api import Cluster, Places, down, existing, up
from tests.local_kubernetes.images import add_to_node

CHART = Path(__file__).parents[3] / "charts" / "rltraining-operator"
RELEASE, OPERATOR_NAMESPACE, TEAM_NAMESPACE = "rltraining-operator", "rltraining-system", "team"
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
RESULTS = pytest.StashKey[dict[str, Future[None]]]()
SECONDS = pytest.StashKey[float]()
SMALL = {"requests": {"cpu": "10m", "memory": "16Mi"}}
THREADS = 6
"""With more threads, two cores would need a minute to import torch in all pods that start together."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "at_once(group): run the test in a thread from the start, after the tests of its group; it may use the fixture `team`",
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Restores the order of the files, also in a random run, with the `at_once` tests first, because later tests stop
    the operator and the API server."""

    def position(item: pytest.Item) -> tuple[object, ...]:
        if item.path.parent != Path(__file__).parent:
            return (0,)
        return 1, item.get_closest_marker("at_once") is None, item.path, item.location[1]

    items.sort(key=position)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A cluster that runs pods."""
    was_up = Places().kubeconfig.exists()
    cluster = up("node")
    yield cluster
    if not was_up:
        down(cluster)


@pytest.fixture(scope="session")
def installed(cluster: Cluster) -> Iterator[Cluster]:
    """The chart with its default values, except for the images, two replicas, status updates every second, and
    requests with which about twenty pods fit on a node with two cores."""
    values = [*_images(), "--set=replicaCount=2", "--set=operator.progressSeconds=1"]
    values += [
        f"--set-json=jobs.resources.{role}={json.dumps(SMALL)}" for role in ("learner", "replay", "sampler")
    ]
    for namespace in (TEAM_NAMESPACE, OPERATOR_NAMESPACE):
        cluster.run("kubectl", "delete", "namespace", namespace, "--ignore-not-found", seconds=120)
        cluster.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": RESTRICTED}}
        )
    where = ("--namespace", OPERATOR_NAMESPACE)
    cluster.run("helm", "install", RELEASE, str(CHART), *where, *values, "--wait", seconds=300)
    yield cluster
    cluster.run("kubectl", "delete", "rlj", "--all", "--namespace", TEAM_NAMESPACE, seconds=120)
    cluster.run("helm", "uninstall", RELEASE, *where, "--wait", seconds=120)


@pytest.fixture(scope="session")
def team(installed: Cluster) -> Team:
    """A namespace of users, also `restricted`."""
    return Team(installed, TEAM_NAMESPACE, OPERATOR_NAMESPACE, RELEASE)


@pytest.fixture(scope="session", autouse=True)
def _at_once(request: pytest.FixtureRequest, team: Team) -> None:
    """Starts the `at_once` tests in threads, because they mostly wait for pods. Named groups take longest, and start
    first."""
    groups: dict[str, list[pytest.Function]] = {}
    for item in request.session.items:
        if isinstance(item, pytest.Function) and (marker := item.get_closest_marker("at_once")):
            groups.setdefault(marker.args[0] if marker.args else item.nodeid, []).append(item)
    ahead = deque(groups[name] for name in sorted(groups, key=lambda name: "::" in name))
    results = request.session.stash[RESULTS] = {item.nodeid: Future() for group in ahead for item in group}
    for _ in range(THREADS):
        Thread(target=_run, args=(ahead, team, results), daemon=True).start()


def _run(ahead: deque[list[pytest.Function]], team: Team, results: dict[str, Future[None]]) -> None:
    """Runs one group after the other, and the tests of a group in their order."""
    while True:
        # Take a group in one step, since the threads share the queue.
        try:
            group = ahead.popleft()
        except IndexError:
            return
        for item in group:
            parameters = item.callspec.params if hasattr(item, "callspec") else {}
            began, failure = time.monotonic(), None
            try:
                item.obj(team=team, **parameters)
            except BaseException as error:  # includes pytest's own for a skipped test
                failure = error
            item.stash[SECONDS] = time.monotonic() - began
            if failure is None:
                results[item.nodeid].set_result(None)
            else:
                results[item.nodeid].set_exception(failure)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Reports the result of an `at_once` test in its turn."""
    result = pyfuncitem.session.stash.get(RESULTS, {}).get(pyfuncitem.nodeid)
    if result is None:
        return None
    result.result()
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Reports how long a test took in its thread, not how long pytest waited for it."""
    report = yield
    if call.when == "call":
        report.duration = item.stash.get(SECONDS, report.duration)
    return report


def _images() -> list[str]:
    """Returns the chart values that select the images: images of this source tree, or on an existing cluster the images
    that CONTRIBUTING.md loads."""
    if existing():
        registry = os.environ.get("RLTRAINING_TEST_REGISTRY", "")
        return [f"--set-string={key}.registry={registry}" for key in ("image", "trainerImage")]
    images = add_to_node()
    return [*_image("image", images["operator"]), *_image("trainerImage", images["trainer"])]


def _image(key: str, reference: str) -> list[str]:
    """Values for `localhost/rltraining-operator:1a2b`."""
    name, _, tag = reference.rpartition(":")
    registry, _, repository = name.partition("/")
    parts = {"registry": registry, "repository": repository, "tag": tag}
    return [f"--set-string={key}.{part}={text}" for part, text in parts.items()]
