"""Builds the common part of all objects of a job: its labels, and the job as their owner. Pure."""

from __future__ import annotations

from typing import Any

from rltraining_api.job import RLTrainingJob
from rltraining_api.names import API_VERSION, KIND, job_labels

Manifest = dict[str, Any]


def owner_reference(job: RLTrainingJob, uid: str) -> Manifest:
    """Returns the reference that makes the job the owner. Garbage collection deletes the child with
    its owner."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": job.metadata.name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def build_owned(
    job: RLTrainingJob, owner: Manifest, kind: str, name: str, api_version: str = "v1"
) -> Manifest:
    """Builds an object of the job, still without content."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": job.metadata.namespace or "default",
            "labels": job_labels(job.metadata.name),
            "ownerReferences": [owner],
        },
    }
