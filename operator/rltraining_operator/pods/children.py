"""Builds the children of a job other than pods: Service, ConfigMap, Secret, perhaps a claim,
NetworkPolicy and PodDisruptionBudget. Pure."""

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

from rltraining_operator.pods.build import JOB_KEY, TOKEN_KEY
from rltraining_operator.pods.owned import build_owned
from rltraining_operator.settings import Settings

Manifest = dict[str, Any]


def build_service(job: RLTrainingJob, owner: Manifest) -> Manifest:
    """Builds the Service that gives learners and replay pods a DNS name from their start on,
    because others look them up before they are ready. Samplers need no name, and the changing
    addresses of ten thousand samplers would load the DNS and the proxy of every node.

    Without replay pods the selector uses the role alone, since learners of an older operator have
    no other label.
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
    """Builds the ConfigMap with the job that the trainer reads, with all defaults filled in."""
    metadata = {"name": job.metadata.name, "namespace": job.metadata.namespace or "default", "uid": uid}
    resolved = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": job.spec.to_dict()}
    child = build_owned(job, owner, "ConfigMap", config_map_name(job.metadata.name))
    return child | {"data": {JOB_KEY: json.dumps(resolved, sort_keys=True)}}


def build_secret(job: RLTrainingJob, owner: Manifest, token: str) -> Manifest:
    """Builds the Secret with the job's token. Created only once, because running pods hold the
    token."""
    child = build_owned(job, owner, "Secret", secret_name(job.metadata.name, owner["uid"]))
    return child | {
        "type": "Opaque",
        "immutable": True,
        "data": {TOKEN_KEY: base64.b64encode(token.encode()).decode()},
    }


def build_claim(job: RLTrainingJob, owner: Manifest) -> Manifest | None:
    """Builds the claim for checkpoints, or returns None if the job has no template for one."""
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
    """Builds the NetworkPolicy, or returns None if it is disabled. Only the job's pods can connect
    to its pods. HTTP is open also to the operator and to the readers of metrics.

    Egress is not restricted: pods need DNS, and any storage and services that users configure.
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


def refuses_eviction(job: RLTrainingJob, settings: Settings) -> bool:
    """Returns whether a drain may not evict the learners of the job."""
    return (job.spec.run_policy.learner_eviction or settings.learner_eviction) == "Refuse"


def build_learner_budget(job: RLTrainingJob, owner: Manifest, settings: Settings) -> Manifest | None:
    """Builds the PodDisruptionBudget that refuses voluntary evictions of ready learners, or returns
    None if they are allowed. Unready learners may be evicted.

    `minAvailable` is a number: for a percentage or `maxUnavailable` the API server reads the scale
    of the pods' owner, and a job's scale is the number of its samplers.
    """
    if not refuses_eviction(job, settings):
        return None
    spec = {
        "minAvailable": job.spec.learner.replicas,
        "selector": {"matchLabels": {LABEL_JOB_NAME: job.metadata.name, LABEL_ROLE: "learner"}},
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    name = learner_budget_name(job.metadata.name)
    return build_owned(job, owner, "PodDisruptionBudget", name, "policy/v1") | {"spec": spec}


def covers(found: Any, wanted: Any) -> bool:
    """Returns whether all wanted values are present. Ignores further fields, such as defaults and
    fields of other writers."""
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(
            k in found and covers(found[k], v) for k, v in wanted.items()
        )
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(covers, found, wanted))
    return bool(found == wanted)
