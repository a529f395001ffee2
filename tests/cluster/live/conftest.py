"""The operator as its users install it, on nodes that run pods: once for all tests of this folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs import Job, Team, example
from troubles import troubles

from tests.cluster.api import Cluster, Places, down, existing, up
from tests.local_kubernetes.images import build_images

CHART = Path(__file__).parents[3] / "charts" / "rltraining-operator"
RELEASE, OPERATOR_NAMESPACE, TEAM_NAMESPACE = "rltraining-operator", "rltraining-system", "team"
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


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
    """The chart with its default values, except for the images and two replicas, in a `restricted` namespace."""
    values = _images(cluster)
    for namespace in (TEAM_NAMESPACE, OPERATOR_NAMESPACE):
        cluster.run("kubectl", "delete", "namespace", namespace, "--ignore-not-found", seconds=120)
        cluster.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": RESTRICTED}}
        )
    where = ("--namespace", OPERATOR_NAMESPACE)
    chart = ("install", RELEASE, str(CHART), *where, *values, "--set", "replicaCount=2", "--wait")
    cluster.run("helm", *chart, seconds=300)
    yield cluster
    cluster.run("helm", "uninstall", RELEASE, *where, "--wait", seconds=120)


@pytest.fixture(scope="session")
def team(installed: Cluster) -> Team:
    """A namespace of users, `restricted` too."""
    return Team(installed, TEAM_NAMESPACE, OPERATOR_NAMESPACE, RELEASE)


@pytest.fixture(scope="session")
def troubled(team: Team) -> Iterator[dict[str, Job]]:
    """Jobs with something wrong, by name. See `troubles`."""
    specs = {name: example("cartpole-impala") | spec for name, spec in troubles(team).items()}
    made = {name: team.submit(name, spec) for name, spec in specs.items()}
    yield made
    for job in made.values():
        job.delete()


@pytest.fixture(scope="session", autouse=True)
def _troubled_first(request: pytest.FixtureRequest) -> None:
    """Much of their time is waiting: they wait while the other tests run."""
    if any("troubled" in getattr(item, "fixturenames", ()) for item in request.session.items):
        request.getfixturevalue("troubled")


def _pull(cluster: Cluster, image: str) -> None:
    """Five gigabytes take their time; no test should have to wait for them."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "pull", "namespace": "default"},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "pull", "image": image, "command": ["rltraining-trainer", "--help"]}],
        },
    }
    cluster.run("kubectl", "delete", "pod", "pull", "--ignore-not-found")
    cluster.apply(pod)
    succeeded = "jsonpath={.status.phase}=Succeeded"
    cluster.run("kubectl", "wait", "pod/pull", f"--for={succeeded}", "--timeout=600s", seconds=620)
    cluster.run("kubectl", "delete", "pod", "pull")


def _images(cluster: Cluster) -> list[str]:
    """Values of the chart that select the images: those of this source tree, or on an existing cluster those that
    CONTRIBUTING.md loads into it."""
    if existing():
        registry = os.environ.get("RLTRAINING_TEST_REGISTRY", "")
        return [f"--set-string={key}.registry={registry}" for key in ("image", "trainerImage")]
    images = build_images()
    _pull(cluster, images["trainer"])
    return [*_image("image", images["operator"]), *_image("trainerImage", images["trainer"])]


def _image(key: str, reference: str) -> list[str]:
    """Of `127.0.0.1:5000/rltraining-operator:1a2b`."""
    name, _, tag = reference.rpartition(":")
    registry, _, repository = name.partition("/")
    parts = {"registry": registry, "repository": repository, "tag": tag}
    return [word for part, text in parts.items() for word in ("--set-string", f"{key}.{part}={text}")]
