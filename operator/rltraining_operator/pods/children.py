"""The children of a job other than pods: a table of them, and how each is built. Pure.

A new child is a row in `CHILDREN` and its builder. Its creation, updates, deletion, paths in the API,
lists and local runs follow from the row. `Child.verbs` are the rights that the chart has to give.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rltraining_api.contract import HTTP_PORT, METRICS_PATH, TLS_PORT
from rltraining_api.job import RLTrainingJob
from rltraining_api.names import (
    API_VERSION,
    KIND,
    LABEL_DIALLED,
    LABEL_JOB_NAME,
    LABEL_ROLE,
    Role,
    budget_name,
    claim_name,
    config_map_name,
    job_labels,
    network_policy_name,
    pod_group_name,
    secret_name,
    service_name,
)

from rltraining_operator.observe.observed import Observed
from rltraining_operator.pods.build import JOB_KEY, TOKEN_KEY
from rltraining_operator.pods.gang import build_pod_group
from rltraining_operator.settings import Settings

Manifest = dict[str, Any]


@dataclass(frozen=True)
class Parent:
    """What children depend on."""

    job: RLTrainingJob
    observed: Observed
    settings: Settings
    ended: bool
    """Whether the job is over."""


@dataclass(frozen=True)
class Child:
    """One child of a job."""

    kind: str
    plural: str
    """The resource in the API."""
    name: Callable[[Observed], str]
    builder: Callable[[Parent, Manifest], Manifest | None]
    """Returns the common part of the manifest with the content. None: the child is
    not created now, and an existing one stays."""
    api_version: str = "v1"
    """Empty if `builder` sets it, because several APIs define the kind."""
    wanted: Callable[[Parent], bool] | None = None
    """Whether the job should have the child. If not, an existing one is deleted. None: it stays as long
    as the job."""
    changes: bool = True
    """Whether an existing child is updated."""
    read: Literal["List", "Get", "Never"] = "List"
    """List: all objects of the kind are listed at each resync. This requires that all clusters have the
    kind, and that the chart always gives the right. Get: one object is read before it is written, for
    kinds of other software. Never: for the Secret with the token, which the operator creates without a
    right to read it."""
    remedy: str = ""
    """What an administrator can do if the cluster rejects the child. The job then runs without the child,
    and the condition ReplicaFailure reports the rejection. Empty: the job needs the child, so that its
    pods are not created before it."""

    def __post_init__(self) -> None:
        if self.wanted is not None and self.read != "List":
            raise ValueError(f"{self.kind}: only listed children can be deleted")
        if self.read == "Never" and (self.kind != "Secret" or self.changes):
            raise ValueError(f"{self.kind}: a child that is never read is not known to exist")

    @property
    def verbs(self) -> list[str]:
        """The rights on the resource that the operator needs."""
        reads = {"List": ["get", "list"], "Get": ["get"], "Never": []}[self.read]
        return [*reads, "create", *["patch"] * self.changes, *["delete"] * (self.wanted is not None)]

    def build(self, parent: Parent) -> Manifest | None:
        """Returns the manifest, or None if the child should not be created now."""
        if self.wanted is not None and not self.wanted(parent):
            return None
        common = {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "metadata": {
                "name": self.name(parent.observed),
                "namespace": parent.job.metadata.namespace or "default",
                "labels": job_labels(parent.job.metadata.name),
                "ownerReferences": [owner_reference(parent.job, parent.observed.uid)],
            },
        }
        return self.builder(parent, common)


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


def build_service(parent: Parent, common: Manifest) -> Manifest:
    """Builds the Service that gives learners and replay pods a DNS name from their start on,
    because others look them up before they are ready. Samplers need no name, and the changing
    addresses of ten thousand samplers would load the DNS and the proxy of every node.

    Without replay pods the selector uses the role alone, since learners of an older operator have
    no other label.
    """
    job = parent.job
    dialled = {LABEL_DIALLED: "true"} if job.spec.replicas("replay") else {LABEL_ROLE: "learner"}
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {LABEL_JOB_NAME: job.metadata.name} | dialled,
        "ports": [{"name": "http", "port": HTTP_PORT}],
    }
    return common | {"spec": spec}


def build_config_map(parent: Parent, common: Manifest) -> Manifest:
    """Builds the ConfigMap with the job that the trainer reads, with all defaults filled in."""
    job, uid = parent.job, parent.observed.uid
    metadata = {"name": job.metadata.name, "namespace": job.metadata.namespace or "default", "uid": uid}
    resolved = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": job.spec.to_dict()}
    return common | {"data": {JOB_KEY: json.dumps(resolved, sort_keys=True)}}


def build_secret(parent: Parent, common: Manifest) -> Manifest:
    """Builds the Secret with the job's token. It does not change, because running pods hold the
    token."""
    token = parent.observed.token
    return common | {
        "type": "Opaque",
        "immutable": True,
        "data": {TOKEN_KEY: base64.b64encode(token.encode()).decode()},
    }


def build_claim(parent: Parent, common: Manifest) -> Manifest | None:
    """Builds the claim for checkpoints, or returns None if the job has no template for one."""
    volume = parent.job.spec.checkpoint.volume
    if volume is None or volume.claim_template is None:
        return None
    theirs, metadata = volume.claim_template.metadata, dict(common["metadata"])
    metadata["labels"] = {**theirs.get("labels", {}), **metadata["labels"]}
    if annotations := theirs.get("annotations"):
        metadata["annotations"] = dict(annotations)
    return common | {"metadata": metadata, "spec": dict(volume.claim_template.spec)}


def build_network_policy(parent: Parent, common: Manifest) -> Manifest:
    """Builds the NetworkPolicy. Only the job's pods can connect to its pods. HTTP is open also to the
    operator and to the readers of metrics.

    Egress is not restricted: pods need DNS, and any storage and services that users configure.
    """
    settings = parent.settings
    members = {"matchLabels": {LABEL_JOB_NAME: parent.observed.name}}
    askers = [peer for peer in (settings.operator_peer, settings.metrics_peer) if peer is not None]
    ingress: list[Manifest] = [{"from": [{"podSelector": members}]}]
    if askers:  # an empty `from` would admit all peers
        http = {"port": HTTP_PORT, "protocol": "TCP"}
        ingress.append({"from": [dict(peer) for peer in askers], "ports": [http]})
    if settings.operator_peer is not None and settings.encryption == "TLS":
        tls = {"port": TLS_PORT, "protocol": "TCP"}
        ingress.append({"from": [dict(settings.operator_peer)], "ports": [tls]})
    spec = {"podSelector": members, "policyTypes": ["Ingress"], "ingress": ingress}
    return common | {"spec": spec}


def build_pod_monitor(parent: Parent, common: Manifest) -> Manifest | None:
    """Builds the PodMonitor with which prometheus-operator scrapes the job's pods, or returns None if the
    administrator does not want PodMonitors."""
    if not parent.settings.pod_monitor_interval:
        return None
    metadata = common["metadata"]
    labels = {**parent.settings.pod_monitor_labels, **metadata["labels"]}
    job_name = f"__meta_kubernetes_pod_label_{re.sub(r'[^a-zA-Z0-9]', '_', LABEL_JOB_NAME)}"
    endpoint = {
        "port": "http",
        "path": METRICS_PATH,
        "interval": parent.settings.pod_monitor_interval,
        "relabelings": [{"sourceLabels": [job_name], "targetLabel": "training_job"}],
    }
    spec = {"selector": {"matchLabels": metadata["labels"]}, "podMetricsEndpoints": [endpoint]}
    return common | {"metadata": metadata | {"labels": labels}, "spec": spec}


def refuses_eviction(parent: Parent) -> bool:
    """Returns whether a drain may not evict learners and replay pods. Nothing blocks a drain once a
    job is over."""
    eviction = parent.job.spec.run_policy.learner_eviction or parent.settings.learner_eviction
    return eviction == "Refuse" and not parent.ended


def build_budget(parent: Parent, common: Manifest, role: Role) -> Manifest | None:
    """Builds the PodDisruptionBudget that refuses voluntary evictions of the role's ready pods, or
    returns None while none is ready, so that the pods of many new jobs take precedence. Unready pods may
    be evicted.

    `minAvailable` is a number: for a percentage or `maxUnavailable` the API server reads the scale
    of the pods' owner, and a job's scale is the number of its samplers.
    """
    if not any(pod.ready for pod in parent.observed.role(role)):
        return None
    spec = {
        "minAvailable": parent.job.spec.replicas(role),
        "selector": {"matchLabels": {LABEL_JOB_NAME: parent.observed.name, LABEL_ROLE: role}},
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    return common | {"spec": spec}


def _budget(role: Role) -> Child:
    return Child(
        "PodDisruptionBudget",
        "poddisruptionbudgets",
        lambda observed: budget_name(observed.name, role),
        lambda parent, common: build_budget(parent, common, role),
        api_version="policy/v1",
        wanted=refuses_eviction,
    )


CHILDREN = (
    Child(
        "NetworkPolicy",
        "networkpolicies",
        lambda observed: network_policy_name(observed.name),
        build_network_policy,
        api_version="networking.k8s.io/v1",
        wanted=lambda parent: parent.settings.network_policy,
    ),
    Child("Service", "services", lambda observed: service_name(observed.name), build_service),
    Child("ConfigMap", "configmaps", lambda observed: config_map_name(observed.name), build_config_map),
    _budget("learner"),
    _budget("replay"),
    Child(
        "PodGroup",
        "podgroups",
        lambda observed: pod_group_name(observed.name),
        lambda parent, common: build_pod_group(parent.job, common),
        api_version="",
        read="Get",
    ),
    Child(
        "PodMonitor",
        "podmonitors",
        lambda observed: observed.name,
        build_pod_monitor,
        api_version="monitoring.coreos.com/v1",
        read="Get",
        remedy="install prometheus-operator's CRDs, or set metrics.podMonitor.perJob to false in the operator's chart",
    ),
    Child(
        "Secret",
        "secrets",
        lambda observed: secret_name(observed.name, observed.uid),
        build_secret,
        changes=False,
        read="Never",
    ),
    Child(
        "PersistentVolumeClaim",
        "persistentvolumeclaims",
        lambda observed: claim_name(observed.name),
        build_claim,
        changes=False,
    ),
)
"""Children with `changes` are applied first, in parallel. Then the others are created, and then the pods.
If the cluster rejects a child without a `remedy`, no pod is created."""
REMEDIES = {child.kind: child.remedy for child in CHILDREN if child.remedy}
"""The remedies by kind. Jobs run without these children."""


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
