"""What a job needs beside its pods: an address, its configuration, its token, perhaps a claim. Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from rltraining_api.contract import HTTP_PORT
from rltraining_api.job import RLTrainingJob
from rltraining_api.names import (
    API_VERSION,
    KIND,
    LABEL_JOB_NAME,
    claim_name,
    config_map_name,
    job_labels,
    secret_name,
    service_name,
)

from rltraining_operator.pods import JOB_KEY, TOKEN_KEY

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


def build_service(job: RLTrainingJob, owner: Manifest) -> Manifest:
    """Gives every pod a DNS name, from its start on: members look for each other before they are ready."""
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {LABEL_JOB_NAME: job.metadata.name},
        "ports": [{"name": "http", "port": HTTP_PORT}],
    }
    return _child(job, owner, "Service", service_name(job.metadata.name)) | {"spec": spec}


def build_config_map(job: RLTrainingJob, owner: Manifest, uid: str) -> Manifest:
    """The job with all defaults filled in, as the trainer reads it."""
    metadata = {"name": job.metadata.name, "namespace": job.metadata.namespace or "default", "uid": uid}
    resolved = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": job.spec.to_dict()}
    child = _child(job, owner, "ConfigMap", config_map_name(job.metadata.name))
    return child | {"data": {JOB_KEY: json.dumps(resolved, indent=1, sort_keys=True)}}


def build_secret(job: RLTrainingJob, owner: Manifest, token: str) -> Manifest:
    """The job's token; made once, since running pods hold it."""
    child = _child(job, owner, "Secret", secret_name(job.metadata.name))
    return child | {"type": "Opaque", "data": {TOKEN_KEY: base64.b64encode(token.encode()).decode()}}


def build_claim(job: RLTrainingJob, owner: Manifest) -> Manifest | None:
    """The claim for checkpoints, if the job brings a template for one."""
    volume = job.spec.checkpoint.volume
    if volume is None or volume.claim_template is None:
        return None
    child = _child(job, owner, "PersistentVolumeClaim", claim_name(job.metadata.name))
    theirs = volume.claim_template.metadata
    child["metadata"]["labels"] = {**theirs.get("labels", {}), **child["metadata"]["labels"]}
    if annotations := theirs.get("annotations"):
        child["metadata"]["annotations"] = dict(annotations)
    return child | {"spec": dict(volume.claim_template.spec)}


def covers(found: Any, wanted: Any) -> bool:
    """Whether everything wanted is so already; what else was found (defaults, other writers' fields) is left alone."""
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(
            k in found and covers(found[k], v) for k, v in wanted.items()
        )
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(covers, found, wanted))
    return bool(found == wanted)


def _child(job: RLTrainingJob, owner: Manifest, kind: str, name: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": job.metadata.namespace or "default",
            "labels": job_labels(job.metadata.name),
            "ownerReferences": [owner],
        },
    }
