"""Maps kinds of objects to their paths in the API."""

from __future__ import annotations

from rltraining_api.names import API_VERSION, KIND, LABEL_MANAGED_BY, MANAGED_BY, PLURAL

from rltraining_operator.pods.children import CHILDREN

PLACES = {
    KIND: (API_VERSION, PLURAL),
    "Pod": ("v1", "pods"),
    "Event": ("v1", "events"),
    "Lease": ("coordination.k8s.io/v1", "leases"),
} | {child.kind: (child.api_version, child.plural) for child in CHILDREN}
"""The apiVersion, empty for PodGroup, which two APIs define, and the resource of each kind."""

SELECTOR = f"{LABEL_MANAGED_BY}={MANAGED_BY}"
"""Selects the operator's objects in lists and watches. The server filters them."""
LISTED = tuple(dict.fromkeys(child.kind for child in CHILDREN if child.read == "List"))
"""Children other than pods that are listed at each resync."""
UNLISTED = tuple(child.kind for child in CHILDREN if child.read == "Get")
"""Cached children that are not listed, because few clusters have the kind."""


def collection(kind: str, namespace: str = "", api_version: str = "") -> str:
    """Returns the path of all objects of a kind, in one namespace or in all."""
    known, plural = PLACES[kind]
    version = api_version or known
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    return f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"


def item(kind: str, namespace: str, name: str, api_version: str = "") -> str:
    """Returns the path of one object."""
    return f"{collection(kind, namespace, api_version)}/{name}"
