"""Other software in the test cluster, such as Kueue: images with programs that were compiled here, and installations from
the software's own chart or objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import yaml
from jobs import Json

from tests.cluster.api import Cluster
from tests.local_kubernetes import node_images, programs

FIRST_REMOVED = (
    "APIService",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
)
"""Kinds that make the API server call a program, so that they are removed before the program ends."""


def image(cluster: Cluster, package: str, path: str) -> tuple[str, str]:
    """Compiles a program, and adds an image to the node in which it has this path. Returns its repository and tag."""
    program = programs.build_separately(cluster.places, package)
    name, _, tag = program.name.rpartition("-")
    node_images.add_program(cluster.places, f"localhost/{name}:{tag}", program, path=path)
    return f"localhost/{name}", tag


def rendered(cluster: Cluster, chart: Path, namespace: str, values: Sequence[str]) -> list[Json]:
    """Returns the objects of a chart that is named like its folder."""
    options = ("--namespace", namespace, "--kube-version", programs.KUBERNETES, "--set", ",".join(values))
    text = cluster.run("helm", "template", chart.name, str(chart), *options).stdout
    return [found for found in yaml.safe_load_all(text) if found]


@contextmanager
def installed(cluster: Cluster, namespace: str, objects: Iterable[Json]) -> Iterator[None]:
    """Applies objects, waits until the programs are ready, and removes the objects in the end."""
    objects = list(objects)
    text = yaml.safe_dump_all(objects)
    # The API server would keep a connection that it opened before the Service had an endpoint, and that leads elsewhere.
    last = [found for found in objects if found["kind"] == "APIService"]
    early = yaml.safe_dump_all(found for found in objects if found not in last)
    apply = ("apply", "--server-side", "--force-conflicts", "-f", "-")
    remove = ("delete", "--ignore-not-found", "--wait=false", "-f", "-")
    try:
        cluster.kubectl(*apply, stdin=early, seconds=120)
        for found in objects:
            if found["kind"] in ("Deployment", "DaemonSet"):
                name = f"{found['kind']}/{found['metadata']['name']}"
                cluster.kubectl("-n", namespace, "rollout", "status", name, "--timeout=120s", seconds=130)
        if last:
            cluster.kubectl(*apply, stdin=yaml.safe_dump_all(last))
        yield
    finally:
        first = [found for found in objects if found["kind"] in FIRST_REMOVED]
        try:
            if first:
                cluster.kubectl(*remove, stdin=yaml.safe_dump_all(first))
        finally:
            cluster.kubectl(*remove, stdin=text, seconds=120)
