"""Verdicts of the API server and of the models on a manifest, as comparable lists of complaints."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from kubernetes import client, config
from rltraining_api.manifest import ManifestError, parse_job
from rltraining_api.names import API_VERSION, PLURAL

Json = dict[str, Any]

NOT_CHECKED = "some validation rules were not checked because the object was invalid"
"""The API server adds this message to other complaints. The message is not about the manifest."""
AT_ONCE = 8
CONTENT_TYPES = {"": "application/json", "merge": "application/merge-patch+json"}


@dataclass(frozen=True)
class Complaint:
    """One thing that is wrong."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


Complaints = tuple[Complaint, ...]
"""Empty if the manifest is accepted."""


class Server:
    """Requests to an API server as JSON."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        found = client.Configuration()
        config.load_kube_config(config_file=str(kubeconfig), client_configuration=found)
        found.connection_pool_maxsize = AT_ONCE
        self._client = client.ApiClient(found)
        self.jobs = f"/apis/{API_VERSION}/namespaces/{namespace}/{PLURAL}"
        """The path of the jobs in the tests' namespace."""

    def request(
        self, method: str, path: str, body: Json | None = None, *, patch: str = "", **query: str
    ) -> Json:
        """Returns the answer: an object, or a `Status` that describes the error. `patch` may be `merge`."""
        headers = {"Content-Type": CONTENT_TYPES[patch], "Accept": "application/json"}
        if token := self._client.configuration.get_api_key_with_prefix("authorization"):
            headers["Authorization"] = token
        url = self._client.configuration.host + path + ("?" + urlencode(query) if query else "")
        pool = self._client.rest_client.pool_manager
        answer: Json = pool.request(method, url, json=body, headers=headers).json()
        return answer

    def store(self, manifests: Iterable[Json]) -> list[Json]:
        """Returns the answers to a dry run of `kubectl create` with each manifest."""

        def create(manifest: Json) -> Json:
            return self.request("POST", self.jobs, manifest, dryRun="All", fieldValidation="Strict")

        with ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(create, manifests))

    def judge(self, manifests: Iterable[Json]) -> list[Complaints]:
        """Returns the complaints about each manifest."""
        return [complaints(answer) for answer in self.store(manifests)]


def complaints(answer: Json) -> Complaints:
    """Returns the complaints in an answer."""
    if answer["kind"] != "Status" or answer.get("status") == "Success":
        return ()
    causes = answer.get("details", {}).get("causes")
    if not causes:
        return (Complaint("", answer["message"]),)
    found = (Complaint(cause.get("field", ""), cause["message"]) for cause in causes)
    return tuple(each for each in found if NOT_CHECKED not in each.message)


def of_the_models(manifest: Json) -> Complaints:
    """Returns the complaints of `rltrain validate`."""
    try:
        parse_job(manifest, "a")
    except ManifestError as error:
        lines = (problem.removeprefix("a: ").partition(": ") for problem in error.problems)
        return tuple(Complaint(field, message) for field, _, message in lines)
    return ()
