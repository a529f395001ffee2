"""kubectl with the API server of the chart's tests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.api import Cluster

Json = dict[str, Any]


@dataclass(frozen=True)
class Kubectl:
    """kubectl as administrator."""

    cluster: Cluster

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.cluster.kubeconfig

    def run(self, *arguments: str, objects: Iterable[Mapping[str, Any]] | None = None) -> str:
        """Returns kubectl's output. `objects` are the input of `-f -`. Raises `ClusterError`."""
        given = "".join(json.dumps(each) + "\n" for each in objects or ())
        return self.cluster.kubectl(*arguments, stdin=given, seconds=100)

    def get(self, *arguments: str) -> Json:
        """Returns objects as JSON."""
        return json.loads(self.run("get", *arguments, "-o", "json"))

    def names(self, *arguments: str) -> set[str]:
        """Returns the names of the objects of a kind."""
        return {each["metadata"]["name"] for each in self.get(*arguments)["items"]}

    def may(self, who: str, verb: str, what: str, namespace: str = "") -> bool:
        """Returns whether `who` has a right in a namespace, or in all namespaces if none is given.

        `who` is a user (`alice`) or a service account (`system:serviceaccount:<namespace>:<name>`).
        `what` is `pods`, `pods/log` or `rltraining.dev:rltrainingjobs/status`, and may end in the name
        of one object: `leases=mine`.
        """
        kind, _, name = what.partition("=")
        group, _, resource = kind.rpartition(":")
        resource, _, subresource = resource.partition("/")
        asked = {
            "verb": verb,
            "group": group,
            "resource": resource,
            "subresource": subresource,
            "name": name,
            "namespace": namespace,
        }
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": who, "groups": ["system:authenticated"], "resourceAttributes": asked},
        }
        answer = self.cluster.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        return bool(answer["status"]["allowed"])

    def make_namespace(self, name: str, *, restricted: bool = False) -> None:
        """Creates a namespace; `restricted` enforces the Pod Security Standard "restricted"."""
        labels = {"pod-security.kubernetes.io/enforce": "restricted"} if restricted else {}
        made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        self.run("create", "-f", "-", objects=[made])
