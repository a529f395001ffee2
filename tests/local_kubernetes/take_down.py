"""Takes a cluster down from any state, and keeps only the caches."""

from __future__ import annotations

import shutil

from tests.local_kubernetes import containers, leftovers, node
from tests.local_kubernetes.locks import alone, name_of
from tests.local_kubernetes.places import Places
from tests.local_kubernetes.progress import step


def down(places: Places, *, purge: bool = False) -> None:
    """Removes everything of the cluster, whatever its state. Removes the caches only with `purge`."""
    with alone(places, name_of(places.run)):
        if leftovers.knows_of(places):
            with step("remove the cluster"):
                _stop_node(places)
                leftovers.sweep(places)
    if purge:
        with step(f"remove {places.cache}"):
            shutil.rmtree(places.cache, ignore_errors=True)


def _stop_node(places: Places) -> None:
    """Stops the kubelet, which would restart its pods, then removes the pods while containerd runs."""
    node.kubelet(places).process.stop(kill=True)
    runtime = node.runtime(places)
    if runtime.process.running():
        containers.remove_all(places)
        runtime.process.stop()
