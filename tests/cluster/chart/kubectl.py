"""kubectl against the API server that the chart's tests have for themselves."""

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
    """The program, as administrator."""

    cluster: Cluster

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.cluster.kubeconfig

    def run(self, *arguments: str, objects: Iterable[Mapping[str, Any]] | None = None) -> str:
        """Its output; `objects` go where `-f -` reads them. Raises `ClusterError`."""
        given = "".join(json.dumps(each) + "\n" for each in objects or ())
        return self.cluster.kubectl(*arguments, stdin=given, seconds=100)

    def get(self, *arguments: str) -> Json:
        """Objects as JSON."""
        return json.loads(self.run("get", *arguments, "-o", "json"))

    def names(self, *arguments: str) -> set[str]:
        """Names of the objects of a kind."""
        return {each["metadata"]["name"] for each in self.get(*arguments)["items"]}

    def may(self, who: str, verb: str, what: str, namespace: str = "") -> bool:
        """Whether a user (`alice`) or a service account (`system:serviceaccount:<namespace>:<name>`) has a right, in every
        namespace where none is named. `what` is `pods`, `pods/log` or `rltraining.dev:rltrainingjobs/status`, and may end
        in the name of one object: `leases=mine`."""
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
        answer = json.loads(self.run("create", "-f", "-", "-o", "json", objects=[review]))
        return bool(answer["status"]["allowed"])

    def make_namespace(self, name: str, *, restricted: bool = False) -> None:
        """A namespace, perhaps one that admits only pods that satisfy the Pod Security Standard "restricted"."""
        labels = {"pod-security.kubernetes.io/enforce": "restricted"} if restricted else {}
        made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        self.run("create", "-f", "-", objects=[made])
