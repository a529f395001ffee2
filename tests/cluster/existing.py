"""Somebody else's cluster, named by the environment: the same tests run there."""

from __future__ import annotations

import os
from pathlib import Path

from tests.cluster.errors import ClusterError
from tests.cluster.places import Places

NO_PARTS = "this cluster was there before: its programs cannot be stopped, started or read from here"


def kubeconfig(places: Places) -> Path | None:
    """RLTRAINING_TEST_KUBECONFIG, or else KUBECONFIG; None when neither is set, or it is our own cluster's."""
    for name in ("RLTRAINING_TEST_KUBECONFIG", "KUBECONFIG"):
        given = os.environ.get(name)
        if given:
            path = Path(given)
            if path == places.kubeconfig:
                return None
            if not path.is_file():
                raise ClusterError(f"{name} names {given}, and there is no such file: correct or unset it")
            return path
    return None
