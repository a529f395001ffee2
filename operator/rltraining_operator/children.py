"""What a job needs beside its pods: an address, its configuration, its token, perhaps a claim; who may reach its pods
and who may evict them. Pure."""

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
    LABEL_DIALLED,
    LABEL_JOB_NAME,
    LABEL_ROLE,
    claim_name,
    config_map_name,
    learner_budget_name,
    network_policy_name,
    secret_name,
    service_name,
)

from rltraining_operator.owned import build_owned
from rltraining_operator.pods import JOB_KEY, TOKEN_KEY
from rltraining_operator.settings import Settings

Manifest = dict[str, Any]


def build_service(job: RLTrainingJob, owner: Manifest) -> Manifest:
    """Gives learners and replay pods a DNS name, from their start on: others look for them before they are ready.
    Samplers need none, and ten thousand addresses that come and go would keep every node's DNS and proxy busy.

    Without replay pods the role alone tells who is meant: learners that an older operator made have no other label.
    """
    dialled = {LABEL_DIALLED: "true"} if job.spec.replicas("replay") else {LABEL_ROLE: "learner"}
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {LABEL_JOB_NAME: job.metadata.name} | dialled,
        "ports": [{"name": "http", "port": HTTP_PORT}],
    }
    return build_owned(job, owner, "Service", service_name(job.metadata.name)) | {"spec": spec}


def build_config_map(job: RLTrainingJob, owner: Manifest, uid: str) -> Manifest:
    """The job with all defaults filled in, as the trainer reads it."""
    metadata = {"name": job.metadata.name, "namespace": job.metadata.namespace or "default", "uid": uid}
    resolved = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": job.spec.to_dict()}
    child = build_owned(job, owner, "ConfigMap", config_map_name(job.metadata.name))
    return child | {"data": {JOB_KEY: json.dumps(resolved, sort_keys=True)}}


def build_secret(job: RLTrainingJob, owner: Manifest, token: str) -> Manifest:
    """The job's token; made once, since running pods hold it."""
    child = build_owned(job, owner, "Secret", secret_name(job.metadata.name, owner["uid"]))
    return child | {
        "type": "Opaque",
        "immutable": True,
        "data": {TOKEN_KEY: base64.b64encode(token.encode()).decode()},
    }


def build_claim(job: RLTrainingJob, owner: Manifest) -> Manifest | None:
    """The claim for checkpoints, if the job brings a template for one."""
    volume = job.spec.checkpoint.volume
    if volume is None or volume.claim_template is None:
        return None
    child = build_owned(job, owner, "PersistentVolumeClaim", claim_name(job.metadata.name))
    theirs = volume.claim_template.metadata
    child["metadata"]["labels"] = {**theirs.get("labels", {}), **child["metadata"]["labels"]}
    if annotations := theirs.get("annotations"):
        child["metadata"]["annotations"] = dict(annotations)
    return child | {"spec": dict(volume.claim_template.spec)}


def build_network_policy(job: RLTrainingJob, owner: Manifest, settings: Settings) -> Manifest | None:
    """Only the job's own pods reach its pods; HTTP is open also to the operator and to who reads metrics.

    Where pods may connect to is not restricted: they need DNS, and whatever storage and services users name.
    """
    if not settings.network_policy:
        return None
    members = {"matchLabels": {LABEL_JOB_NAME: job.metadata.name}}
    askers = [peer for peer in (settings.operator_peer, settings.metrics_peer) if peer is not None]
    ingress: list[Manifest] = [{"from": [{"podSelector": members}]}]
    if askers:  # an empty `from` would admit all peers
        http = {"port": HTTP_PORT, "protocol": "TCP"}
        ingress.append({"from": [dict(peer) for peer in askers], "ports": [http]})
    spec = {"podSelector": members, "policyTypes": ["Ingress"], "ingress": ingress}
    name = network_policy_name(job.metadata.name)
    return build_owned(job, owner, "NetworkPolicy", name, "networking.k8s.io/v1") | {"spec": spec}


def build_learner_budget(job: RLTrainingJob, owner: Manifest, settings: Settings) -> Manifest | None:
    """Refuses voluntary evictions of learners: without one the whole job stands still. One that is not ready may go.

    `minAvailable` as a number: for anything else the API server asks the scale of the pods' owner, and a job's scale
    is that of its samplers.
    """
    if not settings.pod_disruption_budget:
        return None
    spec = {
        "minAvailable": job.spec.learner.replicas,
        "selector": {"matchLabels": {LABEL_JOB_NAME: job.metadata.name, LABEL_ROLE: "learner"}},
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    name = learner_budget_name(job.metadata.name)
    return build_owned(job, owner, "PodDisruptionBudget", name, "policy/v1") | {"spec": spec}


def covers(found: Any, wanted: Any) -> bool:
    """Whether everything wanted is so already; what else was found (defaults, other writers' fields) is left alone."""
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(
            k in found and covers(found[k], v) for k, v in wanted.items()
        )
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(covers, found, wanted))
    return bool(found == wanted)
