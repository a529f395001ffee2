"""Reads the configuration of the operator: a YAML file, as written by the chart, overridden by
options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import Field, ValidationError, model_validator
from rltraining_api.base import ApiModel, refusal
from rltraining_api.explain import explain
from rltraining_api.lifecycle import Encryption, LearnerEviction
from rltraining_api.names import Role

from rltraining_operator.settings import Settings

Positive = Annotated[float, Field(gt=0)]
Port = Annotated[int, Field(ge=1, le=65535)]
Quantity = str | int | float


class ConfigError(Exception):
    """The configuration is invalid. The message names the field and the reason."""


class LogConfig(ApiModel):
    """The level and the format of logs."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["text", "json"] = "text"


class LeaderElectionConfig(ApiModel):
    """The Lease that determines which replica works. A killed leader is replaced after at most
    `leaseSeconds + retrySeconds`, and a leader that is stopped is replaced immediately."""

    enabled: bool = True
    lease_name: str = "rltraining-operator"
    lease_namespace: str = ""
    """If empty, the operator's own namespace (environment variable POD_NAMESPACE), or `default`
    without one."""
    lease_seconds: Positive = 10.0
    """Seconds without a renewal after which another replica may take the lease."""
    renew_seconds: Positive = 7.0
    """Seconds without a renewal after which a leader stops working. Smaller than `leaseSeconds`, so
    that two leaders never overlap."""
    retry_seconds: Positive = 2.0
    """Interval in seconds at which a leader renews the lease and a standby checks it. Smaller than
    `renewSeconds`."""

    @model_validator(mode="after")
    def _each_leaves_time_for_the_next(self) -> Self:
        if self.lease_seconds > self.renew_seconds > self.retry_seconds:
            return self
        seconds = f"{self.lease_seconds:g}, {self.renew_seconds:g} and {self.retry_seconds:g}"
        raise refusal(
            f"leaseSeconds must be more than renewSeconds, and renewSeconds more than retrySeconds; they are {seconds}: "
            "a leader needs more than one attempt to renew, and steps down before another may lead"
        )


class NetworkPolicyConfig(ApiModel):
    """The NetworkPolicy that each job gets."""

    enabled: bool = True
    operator: dict[str, Any] | None = None
    """A NetworkPolicyPeer that selects the operator's pods by namespace and labels. None: the
    operator does not run in a pod."""
    prometheus: dict[str, Any] | None = None
    """A NetworkPolicyPeer (`namespaceSelector`, `podSelector`) that selects the pods that may read
    the metrics of a job's pods. None: no pods."""


class PodMonitorConfig(ApiModel):
    """The PodMonitor that each job gets, for prometheus-operator."""

    enabled: bool = False
    interval: Annotated[str, Field(pattern=r"^[1-9]\d*(ms|s|m|h)$")] = "30s"
    """Interval between two scrapes."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels by which a Prometheus selects it."""


class KeySecretConfig(ApiModel):
    """The Secret with the key from which the tokens of all jobs are derived."""

    name: str = "rltraining-operator-key"
    namespace: str = ""
    """If empty, the operator's own namespace (environment variable POD_NAMESPACE), or `default`
    without one."""


class ResourcesConfig(ApiModel):
    """Requests and limits of the trainer container of a role."""

    requests: dict[str, Quantity] = Field(default_factory=dict)
    limits: dict[str, Quantity] = Field(default_factory=dict)


class Config(ApiModel):
    """The whole configuration. The fields of the first block are inputs of plans, as `settings`."""

    trainer_image: str = Settings.image
    image_pull_policy: Literal["", "Always", "IfNotPresent", "Never"] = ""
    image_pull_secrets: tuple[str, ...] = ()
    priority_class: str = ""
    sampler_priority_class: str = ""
    resources: dict[Role, ResourcesConfig] = Field(default_factory=dict)
    node_selector: dict[str, str] = Field(default_factory=dict)
    tolerations: tuple[dict[str, Any], ...] = ()
    runtime_class: str = ""
    progress_seconds: Positive = Settings.progress_seconds
    rpc_ports: Annotated[str, Field(pattern=r"^\d+-\d+$")] | None = "20000-29999"
    """First and last port. Null: the default of the kernel."""
    network_policy: NetworkPolicyConfig = Field(default_factory=NetworkPolicyConfig)
    pod_monitor: PodMonitorConfig = Field(default_factory=PodMonitorConfig)
    learner_eviction: LearnerEviction = Settings.learner_eviction
    encryption: Encryption = Settings.encryption

    namespaces: tuple[str, ...] = ()
    """Namespaces whose jobs are served. If empty, all namespaces of the cluster."""
    workers: Annotated[int, Field(ge=1, le=1024)] = 4
    """Number of jobs that are processed in parallel. Once the API server is busy, more workers only
    make each pass longer."""
    qps: Positive = 500.0
    """Requests to the API server per second, on average."""
    burst: Annotated[int, Field(ge=1)] = 500
    """Requests that may be sent together after an idle period."""
    request_seconds: Positive = 20.0
    """Time-out of a request in seconds."""
    resync_seconds: Positive = 120.0
    """Interval in seconds at which all objects are listed again, in case a watch has missed a
    change."""
    http_port: Port = 8080
    """Port of /healthz, /readyz and /metrics."""
    log: LogConfig = Field(default_factory=LogConfig)
    leader_election: LeaderElectionConfig = Field(default_factory=LeaderElectionConfig)
    key_secret: KeySecretConfig = Field(default_factory=KeySecretConfig)

    @property
    def settings(self) -> Settings:
        """The inputs of plans."""
        first, _, last = (self.rpc_ports or "").partition("-")
        return Settings(
            image=self.trainer_image,
            image_pull_policy=self.image_pull_policy,
            image_pull_secrets=self.image_pull_secrets,
            priority_class=self.priority_class,
            sampler_priority_class=self.sampler_priority_class,
            resources={role: resources.model_dump() for role, resources in self.resources.items()},
            node_selector=self.node_selector,
            tolerations=self.tolerations,
            runtime_class=self.runtime_class,
            progress_seconds=self.progress_seconds,
            rpc_ports=(int(first), int(last)) if first else None,
            network_policy=self.network_policy.enabled,
            operator_peer=self.network_policy.operator,
            metrics_peer=self.network_policy.prometheus,
            pod_monitor_interval=self.pod_monitor.interval if self.pod_monitor.enabled else "",
            pod_monitor_labels=self.pod_monitor.labels,
            learner_eviction=self.learner_eviction,
            encryption=self.encryption,
        )


def load_config(path: Path | None) -> Config:
    """Reads the configuration from a file, or returns the defaults without one. Raises
    `ConfigError`."""
    if path is None:
        return Config()
    try:
        data = yaml.safe_load(path.read_text()) or {}
        return Config.model_validate(data)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not YAML: {error}") from error
    except ValidationError as error:
        raise ConfigError(f"{path}: {'; '.join(explain(error, Config))}") from error
