"""Prepares the manifest of a new job: validated, with only the fields that the user has set."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from rltraining_api.job import RLTrainingJob
from rltraining_api.manifest import ManifestError, parse_job
from rltraining_api.names import API_VERSION, KIND

from rltraining import jobfile
from rltraining.errors import UsageError
from rltraining.jobfile import JobFile
from rltraining.sdk.api import Json
from rltraining.sdk.errors import JobRejectedError

Source = RLTrainingJob | JobFile | Mapping[str, Any] | str | os.PathLike[str]
"""A job, a manifest as a file that was read or as data, or the path of a manifest."""


def prepare(source: Source, overrides: Iterable[str] = ()) -> JobFile:
    """Reads and validates a job. Raises JobRejectedError with a sentence per problem."""
    try:
        if isinstance(source, JobFile):
            return source
        if isinstance(source, RLTrainingJob):
            return JobFile(source)
        if isinstance(source, Mapping):
            return JobFile(parse_job(dict(source)))
        return jobfile.load(os.fspath(source), overrides)
    except (ManifestError, UsageError) as error:
        raise JobRejectedError(*error.problems) from None


def as_written(job: RLTrainingJob) -> Json:
    """Returns the fields that were set, without defaults and without metadata of the API server."""
    data = job.model_dump(mode="json", by_alias=True, exclude_unset=True)
    metadata = {
        key: value
        for key, value in (data.get("metadata") or {}).items()
        if key in ("name", "namespace", "labels", "annotations") and value is not None
    }
    annotations = dict(metadata.pop("annotations", {}))
    annotations.pop(jobfile.SOURCE_ANNOTATION, None)  # a local path is meaningless in the cluster
    if annotations:
        metadata["annotations"] = annotations
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": data["spec"]}


def renamed(manifest: Json, *, name: str | None, generate: bool) -> Json:
    """Returns the manifest with another name, or with a prefix from which the API server generates
    a name, such as `cartpole-x7k2p`.

    Raises JobRejectedError for an invalid name.
    """
    metadata = dict(manifest["metadata"])
    metadata["name"] = name or metadata["name"]
    try:
        parse_job({**manifest, "metadata": metadata})
    except ManifestError as error:
        raise JobRejectedError(*error.problems) from None
    if generate:
        metadata["generateName"] = f"{metadata.pop('name')}-"
    return {**manifest, "metadata": metadata}
