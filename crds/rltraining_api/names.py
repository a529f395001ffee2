"""What things are called: the resource, its labels, and the objects that belong to a job."""

from __future__ import annotations

from typing import Final, Literal

GROUP = "rltraining.dev"
VERSION = "v1alpha1"
API_VERSION: Final = "rltraining.dev/v1alpha1"
KIND: Final = "RLTrainingJob"
PLURAL = "rltrainingjobs"
SINGULAR = "rltrainingjob"
SHORT_NAME = "rlj"
CRD_NAME = f"{PLURAL}.{GROUP}"

CONTROLLER_NAME = f"{GROUP}/operator"
"""`runPolicy.managedBy` with this value, or without one, means: this operator."""

Role = Literal["learner", "replay", "sampler"]
ROLES: tuple[Role, ...] = ("learner", "replay", "sampler")

LABEL_JOB_NAME = f"{GROUP}/job-name"
LABEL_ROLE = f"{GROUP}/role"
LABEL_INDEX = f"{GROUP}/index"
LABEL_DIALLED = f"{GROUP}/dialled"
"""`true` for pods that others find by their DNS names: learners and replay pods."""
LABEL_SWEEP = f"{GROUP}/sweep"
"""On the jobs of a sweep: its name."""
ANNOTATION_POINT = f"{GROUP}/point"
"""On a job of a sweep: which values it has, as a JSON object of paths and values, without the seed."""
ANNOTATION_TEMPLATE = f"{GROUP}/template"
"""On a sampler's pod: short hash of the `sampler.template` from which it was built."""
ANNOTATION_ENCRYPTION = f"{GROUP}/encryption"
"""On each pod of an encrypted job: `TLS`."""
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGED_BY = "rltraining-operator"
LABEL_APP_NAME = "app.kubernetes.io/name"
"""On the operator's own pods, with the value MANAGED_BY."""

SAMPLERS_MAX = 10_000
LEARNERS_MAX = 64
REPLAYS_MAX = 64
MEMBERS_MAX = LEARNERS_MAX + REPLAYS_MAX + SAMPLERS_MAX
"""Pods of a job."""
THREADS_MAX = 1024
"""Threads of a learner."""
NAME_MAX = 63 - len(f"-sampler-{SAMPLERS_MAX - 1}")
"""A job's name is an RFC 1035 label, so short that its last sampler's is one too: both go into DNS."""


RESERVED_PREFIX = f"{GROUP}/"
"""Of labels and annotations that only the operator sets on pods and other children of a job."""


def pod_name(job: str, role: Role, index: int) -> str:
    """`cartpole-sampler-3`"""
    return f"{job}-{role}-{index}"


def parse_pod_name(job: str, name: str) -> tuple[Role, int] | None:
    """Role and index of the pod of this name; None when no pod of the job is called so."""
    prefix, _, number = name.rpartition("-")
    for role in ROLES:
        if prefix == f"{job}-{role}" and number.isdecimal() and name == pod_name(job, role, int(number)):
            return role, int(number)
    return None


def service_name(job: str) -> str:
    """Returns the name of the headless Service: a pod's address is `<pod>.<service>`. The suffix prevents users who may
    create jobs, but no Services, from taking over another name in the namespace, such as `postgres`."""
    return f"{job}-rlt"


def config_map_name(job: str) -> str:
    """Holds the resolved job that the trainer reads."""
    return f"{job}-config"


def secret_name(job: str, uid: str) -> str:
    """Holds the job's token. With the beginning of the job's uid, so that a Secret of this name is this job's, not an
    earlier one's: the operator cannot read Secrets to find out."""
    return f"{job}-token-{uid[:8]}"


def network_policy_name(job: str) -> str:
    """Admits only the job's own pods."""
    return job


def budget_name(job: str, role: Role) -> str:
    """The PodDisruptionBudget of the pods of a role."""
    return f"{job}-{role}"


def pod_group_name(job: str) -> str:
    """The PodGroup of the job, for schedulers that start pods together."""
    return job


def claim_name(job: str) -> str:
    """The PersistentVolumeClaim made from `checkpoint.volume.claimTemplate`."""
    return f"{job}-checkpoints"


def job_labels(job: str) -> dict[str, str]:
    """Labels of every object that belongs to a job."""
    return {LABEL_JOB_NAME: job, LABEL_MANAGED_BY: MANAGED_BY}


def pod_labels(job: str, role: Role, index: int) -> dict[str, str]:
    """Labels of one pod."""
    dialled = {} if role == "sampler" else {LABEL_DIALLED: "true"}
    return job_labels(job) | {LABEL_ROLE: role, LABEL_INDEX: str(index)} | dialled


def role_selector(job: str, role: Role) -> str:
    """Label selector of all pods of a role, as `kubectl -l` and the scale subresource take it."""
    return f"{LABEL_JOB_NAME}={job},{LABEL_ROLE}={role}"
