"""What every object that belongs to a job has in common: its labels, and the job as its owner. Pure."""

from __future__ import annotations

from typing import Any

from rltraining_api.job import RLTrainingJob
from rltraining_api.names import API_VERSION, KIND, job_labels

Manifest = dict[str, Any]


def owner_reference(job: RLTrainingJob, uid: str) -> Manifest:
    """Makes the job the owner: garbage collection deletes the child with it."""
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
    """An object of the job, as yet without content."""
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
