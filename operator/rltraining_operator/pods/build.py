"""Builds the pods of a job from the contract, the job and the user's template. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rltraining_api import contract
from rltraining_api.job import RLTrainingJob
from rltraining_api.lifecycle import Encryption
from rltraining_api.names import (
    ANNOTATION_ENCRYPTION,
    ANNOTATION_TEMPLATE,
    Role,
    claim_name,
    config_map_name,
    pod_labels,
    pod_name,
    secret_name,
    service_name,
)
from rltraining_api.roles import LIST_KEYS

from rltraining_operator.observe.observed import Observed
from rltraining_operator.pods import gang
from rltraining_operator.pods.rollout import template_hash
from rltraining_operator.settings import Resources, Settings

Manifest = dict[str, Any]

CONFIG_DIR, JOB_KEY = "/etc/rltraining", "job.json"
TOKEN_DIR, TOKEN_KEY = "/etc/rltraining-token", "token"
CODE_DIR = "/etc/rltraining-code"
OUTPUT_DIR = "/output"
OUTPUT_VOLUME = "output"
TERMINATION_LOG = "/dev/termination-log"
PROGRAM = "rltraining-trainer"
PORT_RANGE = "net.ipv4.ip_local_port_range"
"""The sysctl with the range from which the kernel assigns ports to RPC listeners and
connections."""


def build_pod(job: RLTrainingJob, owner: Manifest, role: Role, index: int, settings: Settings) -> Manifest:
    """Builds the pod of one member. `owner` is the job's ownerReference."""
    # Merge the user's template into the operator's defaults.
    name = job.metadata.name
    template = job.spec.template(role)
    theirs = dict(template.spec)
    containers: list[Manifest] = theirs.pop("containers", [])
    trainer: Manifest = next((c for c in containers if c["name"] == contract.TRAINER_CONTAINER), {})
    ours = _pod_spec(job, owner, role, index, settings) | _placement(settings, theirs)
    spec = _merge(ours, theirs)
    if spec.get("hostNetwork"):
        _leave_out_sysctl(spec)
    # Add the trainer before the user's other containers.
    spec["containers"] = [
        _trainer(job, role, index, trainer, settings),
        *(c for c in containers if c["name"] != contract.TRAINER_CONTAINER),
    ]
    spec |= {
        # The contract overrides the template: a crash restarts the container in place, and peers
        # find the pod by its name.
        "restartPolicy": "OnFailure",
        "hostname": pod_name(name, role, index),
        "subdomain": service_name(name),
        "automountServiceAccountToken": False,
    }
    # Add labels, annotations and the owner.
    metadata = {
        "name": pod_name(name, role, index),
        "namespace": job.metadata.namespace or "default",
        "labels": {
            **template.metadata.get("labels", {}),
            **gang.pod_labels(job),
            **pod_labels(name, role, index),
        },
        "ownerReferences": [owner],
    }
    annotations = {**template.metadata.get("annotations", {}), **gang.pod_annotations(job)}
    if role == "sampler":
        annotations[ANNOTATION_TEMPLATE] = template_hash(template)
    if settings.encryption == "TLS":
        annotations[ANNOTATION_ENCRYPTION] = "TLS"
    if annotations:
        metadata["annotations"] = annotations
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def encryption_of(job: RLTrainingJob, observed: Observed, settings: Settings) -> Encryption:
    """Returns the encryption of the job's pods. All pods of a job need the same one, so a new pod
    follows the present pods until the job is suspended, even if the installation's choice changes."""
    if job.spec.encryption is not None:
        return job.spec.encryption
    if observed.pods:
        return "TLS" if any(pod.encrypted for pod in observed.pods) else "None"
    return settings.encryption


def _pod_spec(job: RLTrainingJob, owner: Manifest, role: Role, index: int, settings: Settings) -> Manifest:
    """Returns the part of the spec that a template may change."""
    name = job.metadata.name
    volumes: list[Manifest] = [
        {"name": "config", "configMap": {"name": config_map_name(name)}},
        {"name": "token", "secret": {"secretName": secret_name(name, owner["uid"]), "defaultMode": 0o440}},
        {"name": OUTPUT_VOLUME} | _output(job, role, index),
        {"name": "tmp", "emptyDir": {}},
    ]
    if job.spec.code:
        volumes.append({"name": "code", "configMap": {"name": job.spec.code.config_map.name}})
    security: Manifest = {
        "runAsNonRoot": True,
        "fsGroup": 65532,  # makes the token and a claim readable to any user of the image
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    if settings.rpc_ports is not None:
        security["sysctls"] = [{"name": PORT_RANGE, "value": "{} {}".format(*settings.rpc_ports)}]
    spec: Manifest = {"volumes": volumes, "enableServiceLinks": False, "securityContext": security}
    if settings.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": secret} for secret in settings.image_pull_secrets]
    own_class = settings.sampler_priority_class if role == "sampler" else ""
    if priority_class := own_class or settings.priority_class:
        spec["priorityClassName"] = priority_class
    return spec | gang.pod_spec(job)


def _placement(settings: Settings, theirs: Mapping[str, Any]) -> Manifest:
    """Returns where pods run by default. A field of the template replaces the whole default, so that
    a template can select other nodes."""
    defaults: Manifest = {
        "nodeSelector": dict(settings.node_selector),
        "tolerations": [dict(toleration) for toleration in settings.tolerations],
        "runtimeClassName": settings.runtime_class,
    }
    return {name: value for name, value in defaults.items() if value and name not in theirs}


def _leave_out_sysctl(spec: Manifest) -> None:
    """Removes the port range from the sysctls. On the host's network it would apply to the host,
    and a kubelet rejects it."""
    security = spec["securityContext"] = dict(spec["securityContext"])
    security["sysctls"] = [item for item in security.get("sysctls") or () if item.get("name") != PORT_RANGE]


def _output(job: RLTrainingJob, role: Role, index: int) -> Manifest:
    """Returns the source of the output volume. Only the first learner writes persistent files, and
    a claim can often be mounted on one node only."""
    volume = job.spec.checkpoint.volume
    if volume is None or (role, index) != ("learner", 0):
        return {"emptyDir": {}}
    return {"persistentVolumeClaim": {"claimName": volume.claim_name or claim_name(job.metadata.name)}}


def _trainer(
    job: RLTrainingJob, role: Role, index: int, theirs: Mapping[str, Any], settings: Settings
) -> Manifest:
    mounts = [
        {"name": "config", "mountPath": CONFIG_DIR, "readOnly": True},
        {"name": "token", "mountPath": TOKEN_DIR, "readOnly": True},
        {"name": OUTPUT_VOLUME, "mountPath": OUTPUT_DIR},
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - in the container
    ]
    # Pods share a node's cores, for which many threads each would compete.
    defaults = {"OMP_NUM_THREADS": "1"}
    if job.spec.code:
        mounts.append({"name": "code", "mountPath": CODE_DIR, "readOnly": True})
        defaults[contract.ENV_CODE_DIR] = CODE_DIR
    ours: Manifest = {
        "name": contract.TRAINER_CONTAINER,
        "image": job.spec.image or settings.image,
        "command": [PROGRAM, role],
        "env": _env(defaults),
        "ports": [{"name": "http", "containerPort": contract.HTTP_PORT}],
        "readinessProbe": {
            "httpGet": {"path": contract.READY_PATH, "port": contract.HTTP_PORT},
            "periodSeconds": 2,
            "timeoutSeconds": 5,
            "failureThreshold": 2,
        },
        # Importing torch takes up to a minute if many pods start together.
        "startupProbe": {
            "httpGet": {"path": contract.HEALTH_PATH, "port": contract.HTTP_PORT},
            "periodSeconds": 2,
            "timeoutSeconds": 5,
            "failureThreshold": 120,
        },
        # A process that hangs is replaced after 30 s. With 15 s, two healthy pods of a node short
        # of CPU were restarted once.
        "livenessProbe": {
            "httpGet": {"path": contract.HEALTH_PATH, "port": contract.HTTP_PORT},
            "periodSeconds": 5,
            "timeoutSeconds": 5,
            "failureThreshold": 6,
        },
        "volumeMounts": mounts,
        "terminationMessagePath": TERMINATION_LOG,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    if settings.encryption == "TLS":
        ours["ports"].append({"name": "tls", "containerPort": contract.TLS_PORT})
    if settings.image_pull_policy:
        ours["imagePullPolicy"] = settings.image_pull_policy
    if resources := _resources(settings.resources.get(role) or {}, theirs.get("resources") or {}):
        ours["resources"] = resources
    merged = _merge(ours, theirs)
    merged["terminationMessagePath"] = TERMINATION_LOG  # the trainer writes to this path
    merged["env"] = _merge_list(merged["env"], _env(_identity(job, role, index, settings)), "name")
    # Only the first learner sends to trackers. The template's sources are last, so that they override.
    secret = job.spec.tracking.secret_name if job.spec.tracking else None
    if secret is not None and (role, index) == ("learner", 0):
        merged["envFrom"] = [{"secretRef": {"name": secret}}, *(merged.get("envFrom") or ())]
    return merged


def _resources(defaults: Resources, theirs: Resources) -> Manifest:
    """Returns the default requests and limits of the resources that a template does not name. A
    default request above the template's limit would be rejected."""
    kinds = ("requests", "limits")
    named = {name for kind in kinds for name in theirs.get(kind) or ()}
    left = {
        kind: {name: value for name, value in (defaults.get(kind) or {}).items() if name not in named}
        for kind in kinds
    }
    return {kind: values for kind, values in left.items() if values}


def _identity(job: RLTrainingJob, role: Role, index: int, settings: Settings) -> dict[str, str]:
    """Returns the environment that the contract promises. A template cannot change it."""
    name = job.metadata.name
    tls = {contract.ENV_TLS_PORT: str(contract.TLS_PORT)} if settings.encryption == "TLS" else {}
    return {
        contract.ENV_JOB_FILE: f"{CONFIG_DIR}/{JOB_KEY}",
        contract.ENV_TOKEN_FILE: f"{TOKEN_DIR}/{TOKEN_KEY}",
        contract.ENV_OUTPUT_DIR: OUTPUT_DIR,
        contract.ENV_TERMINATION_LOG: TERMINATION_LOG,
        contract.ENV_POD_NAME: pod_name(name, role, index),
        contract.ENV_INDEX: str(index),
        contract.ENV_HTTP_PORT: str(contract.HTTP_PORT),
        contract.ENV_LEARNERS: _addresses(job, "learner"),
        contract.ENV_REPLAYS: _addresses(job, "replay"),
        **tls,
    }


def _addresses(job: RLTrainingJob, role: Role) -> str:
    name = job.metadata.name
    pods = (pod_name(name, role, index) for index in range(job.spec.replicas(role)))
    return ",".join(f"http://{pod}.{service_name(name)}:{contract.HTTP_PORT}" for pod in pods)


def _env(values: Mapping[str, str]) -> list[Manifest]:
    return [{"name": name, "value": value} for name, value in values.items()]


def _merge(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Manifest:
    """Merges `theirs` into `ours`: objects field by field, the lists of LIST_KEYS item by item. Any
    other value is replaced."""
    merged = dict(ours)
    for key, value in theirs.items():
        mine = merged.get(key)
        if isinstance(mine, Mapping) and isinstance(value, Mapping):
            merged[key] = _merge(mine, value)
        elif isinstance(mine, list) and isinstance(value, list) and key in LIST_KEYS:
            merged[key] = _merge_list(mine, value, LIST_KEYS[key])
        else:
            merged[key] = value
    return merged


def _merge_list(ours: list[Manifest], theirs: list[Manifest], key: str) -> list[Manifest]:
    """Merges lists by key. An item of `theirs` replaces the whole item of `ours`."""
    replaced = {item.get(key): item for item in theirs}
    kept = [replaced.pop(item[key], item) for item in ours]
    return [*kept, *(item for item in theirs if item.get(key) in replaced)]
