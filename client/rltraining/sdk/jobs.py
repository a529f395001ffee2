"""Accesses jobs and their children as raw objects. One request per method, and a sentence for each
rejection."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rltraining_api.names import API_VERSION, KIND, LABEL_JOB_NAME, PLURAL

from rltraining.sdk import errors, rejections
from rltraining.sdk.api import APPLY_PATCH, Api, Json, Query, Refused
from rltraining.sdk.watching import Watched, list_all

FIELD_MANAGER = "rltrain"
TABLE_TYPE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
INSTALL = (
    "helm upgrade --install rltraining-operator charts/rltraining-operator --namespace rltraining-system --create-namespace "
    "--set image.registry=REGISTRY --set trainerImage.registry=REGISTRY (docs/install.md)"
)


class Jobs:
    """The jobs of a namespace."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api = api
        self.namespace = namespace

    # Jobs

    def get(self, name: str) -> Json:
        """Returns a job. Raises JobNotFoundError."""
        with self.translate_errors(name):
            return self.api.get(self.path(name))

    def items(self, selector: str = "", *, everywhere: bool = False) -> list[Json]:
        """Returns all jobs in the API server's order: by namespace and name. They contain kind and
        apiVersion."""
        with self.translate_errors(about=f"selector {selector}: " if selector else ""):
            return list_all(self.api, self.path(everywhere=everywhere), _selected(selector)).items

    def table(
        self, name: str = "", selector: str = "", *, everywhere: bool = False, limit: int | None = None
    ) -> Json:
        """Returns the API server's `Table`, with the printer columns of the CRD."""
        query = _selected(selector) | ({"limit": limit} if limit else {})
        with self.translate_errors(name, about=f"selector {selector}: " if selector else ""):
            return self.api.get(self.path(name, everywhere=everywhere), query, accept=TABLE_TYPE)

    def create(self, manifest: Json, *, dry_run: bool = False) -> Json:
        """Creates a job. Raises JobExistsError, JobRejectedError."""
        query: dict[str, str | int] = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}
        metadata = manifest.get("metadata") or {}
        with self.translate_errors(str(metadata.get("name") or metadata.get("generateName") or "")):
            return self.api.create(self.path(), manifest, query | ({"dryRun": "All"} if dry_run else {}))

    def patch(self, name: str, body: Json) -> Json:
        """Applies a merge patch. Raises JobNotFoundError, JobRejectedError."""
        with self.translate_errors(name):
            return self.api.patch(self.path(name), body, {"fieldManager": FIELD_MANAGER})

    def scale(self, name: str, replicas: int) -> None:
        """Sets the number of samplers through the scale subresource, like `kubectl scale`."""
        with self.translate_errors(name):
            self.api.patch(
                f"{self.path(name)}/scale",
                {"spec": {"replicas": replicas}},
                {"fieldManager": FIELD_MANAGER},
            )

    def delete(self, name: str) -> None:
        """Deletes a job, whose children are garbage-collected. Raises JobNotFoundError."""
        with self.translate_errors(name):
            self.api.delete(self.path(name), {"propagationPolicy": "Background"})

    def watched(self, name: str = "", selector: str = "", *, everywhere: bool = False) -> Watched:
        """Returns a watch of one job or of all jobs."""
        query = _selected(selector) | ({"fieldSelector": f"metadata.name={name}"} if name else {})
        return Watched(self.api, self.path(everywhere=everywhere), query)

    # Children of jobs

    def apply_config_map(self, document: Json) -> None:
        """Creates a ConfigMap, or replaces its content."""
        name = document["metadata"]["name"]
        body = {"apiVersion": "v1", **document}
        with self.translate_errors():
            self.api.patch(
                self._core("configmaps", name),
                body,
                {"fieldManager": FIELD_MANAGER, "force": "true"},
                kind=APPLY_PATCH,
            )

    def pod(self, name: str) -> Json | None:
        """Returns a pod, or None if it does not exist."""
        try:
            return self.api.get(self._core("pods", name))
        except Refused as refused:
            if refused.code == 404:
                return None
            raise self.translate_error(refused) from None

    def pods(self, job: str) -> list[Json]:
        """Returns all pods of a job."""
        with self.translate_errors(job):
            return list_all(self.api, self._core("pods"), _selected(f"{LABEL_JOB_NAME}={job}")).items

    def delete_pod(self, name: str, uid: str) -> bool:
        """Deletes the pod with this uid at once, without a grace period. Returns whether it existed."""
        try:
            self.api.delete(
                self._core("pods", name), {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
            )
        except Refused as refused:
            if refused.code in (404, 409):
                return False
            raise self.translate_error(refused) from None
        return True

    def watched_pod(self, name: str) -> Watched:
        return Watched(self.api, self._core("pods"), {"fieldSelector": f"metadata.name={name}"})

    def watched_pods(self, job: str) -> Watched:
        """Returns a watch of all pods of a job."""
        return Watched(self.api, self._core("pods"), {"labelSelector": f"{LABEL_JOB_NAME}={job}"})

    def events(self, job: str) -> list[Json]:
        """Returns the Events of a job."""
        with self.translate_errors(job):
            return list_all(self.api, self._core("events"), _about(job)).items

    def watched_events(self, job: str) -> Watched:
        """Returns a watch of the Events of a job."""
        return Watched(self.api, self._core("events"), _about(job))

    @contextmanager
    def log(self, pod: str, query: Query, *, silence: float | None) -> Iterator[Iterator[bytes]]:
        """Yields the lines of a container's log. Raises Refused, ConnectionLost."""
        with self.api.stream(f"{self._core('pods', pod)}/log", query, silence=silence) as lines:
            yield lines

    # Paths and messages

    def path(self, name: str = "", *, everywhere: bool = False) -> str:
        namespace = "" if everywhere else f"/namespaces/{self.namespace}"
        return f"/apis/{API_VERSION}{namespace}/{PLURAL}" + (f"/{name}" if name else "")

    def _core(self, resource: str, name: str = "") -> str:
        return f"/api/v1/namespaces/{self.namespace}/{resource}" + (f"/{name}" if name else "")

    @contextmanager
    def translate_errors(self, name: str = "", *, about: str = "") -> Iterator[None]:
        """Converts rejections to errors about the job of this name. `about` is the prefix of
        messages about invalid input."""
        try:
            yield
        except Refused as refused:
            raise self.translate_error(refused, name, about) from None

    def translate_error(self, refused: Refused, name: str = "", about: str = "") -> errors.ClusterError:
        """Converts a rejection to an error with a message for users."""
        code, cluster = refused.code, self.api.access.description
        match code:
            case 404:
                return self._not_found(refused, name)
            case 401:
                return errors.AccessDeniedError(
                    f"Authentication failed (401) at the cluster of {cluster}: log in again, or fix the user of the context."
                )
            case 403 if reason := rejections.denied(refused.message):
                return errors.AccessDeniedError(reason)
            case 409 if refused.reason == "AlreadyExists":
                return errors.JobExistsError(
                    f"job {name} exists already in namespace {self.namespace}: "
                    "delete it, or take another name with --name or --generate-name"
                )
            case 429 | 500 | 502 | 503 | 504:
                said = refused.message or refused.reason or "no reason was given"
                return errors.ServerError(
                    f"the API server of {cluster} answers {code}: {said}: try again later"
                )
        return errors.JobRejectedError(*(about + said for said in rejections.sentences(refused.status)))

    def _not_found(self, refused: Refused, name: str) -> errors.ClusterError:
        """Converts a 404 to an error about the job, the namespace or the kind."""
        missing = str(refused.details.get("kind") or "")
        if missing == PLURAL and name:
            return errors.JobNotFoundError(f"there is no job {name} in namespace {self.namespace}")
        if missing == "namespaces":
            return errors.JobRejectedError(
                f"there is no namespace {refused.details.get('name')}: create it with kubectl create namespace"
            )
        if missing in ("", PLURAL):
            return errors.NotInstalledError(
                f"the cluster of {self.api.access.description} has no kind {KIND}: install the operator: {INSTALL}"
            )
        return errors.ClusterError(refused.message)


def _selected(selector: str) -> dict[str, str | int]:
    return {"labelSelector": selector} if selector else {}


def _about(job: str) -> dict[str, str | int]:
    """Returns the selector of a job's Events."""
    return {"fieldSelector": f"involvedObject.kind={KIND},involvedObject.name={job}"}


def own_name(job: Json) -> str:
    return str(job["metadata"]["name"])


def as_list(jobs: list[Any]) -> Json:
    """Returns several objects as in the output of `kubectl get -o json`."""
    return {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": jobs}
