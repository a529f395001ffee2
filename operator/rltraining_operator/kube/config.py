"""What the one who installs the operator decides: a YAML file, as the chart writes it, and options over it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import Field, ValidationError, model_validator
from rltraining_api.base import ApiModel, refusal
from rltraining_api.explain import explain

from rltraining_operator.settings import Settings

Positive = Annotated[float, Field(gt=0)]
Port = Annotated[int, Field(ge=1, le=65535)]


class ConfigError(Exception):
    """The configuration cannot be used; the message says which field and why."""


class LogConfig(ApiModel):
    """What is logged, and how."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["text", "json"] = "text"


class LeaderElectionConfig(ApiModel):
    """The Lease that says which replica works. A killed leader is replaced after `leaseSeconds + retrySeconds` at most,
    one that is asked to end at once."""

    enabled: bool = True
    lease_name: str = "rltraining-operator"
    lease_namespace: str = ""
    """If empty, the operator's own namespace (environment variable POD_NAMESPACE), or `default` without one."""
    lease_seconds: Positive = 10.0
    """A lease that was not renewed for so long may be taken."""
    renew_seconds: Positive = 7.0
    """A leader that could not renew for so long stops working. Smaller than `leaseSeconds`: two leaders never overlap."""
    retry_seconds: Positive = 2.0
    """How often a leader renews and a standby looks. Smaller than `renewSeconds`."""

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
    """A NetworkPolicyPeer: the operator's pods, by their namespace and their labels. None: it runs in no pod."""
    prometheus: dict[str, Any] | None = None
    """A NetworkPolicyPeer (`namespaceSelector`, `podSelector`): who may read the pods' metrics. None: nobody."""


class KeySecretConfig(ApiModel):
    """The Secret with the key from which the tokens of all jobs are derived."""

    name: str = "rltraining-operator-key"
    namespace: str = ""
    """If empty, the operator's own namespace (environment variable POD_NAMESPACE), or `default` without one."""


class Config(ApiModel):
    """All of it; the first block enters the plans, as `settings`."""

    trainer_image: str = Settings.image
    image_pull_policy: Literal["", "Always", "IfNotPresent", "Never"] = ""
    image_pull_secrets: tuple[str, ...] = ()
    priority_class: str = ""
    progress_seconds: Positive = Settings.progress_seconds
    rpc_ports: Annotated[str, Field(pattern=r"^\d+-\d+$")] | None = "20000-29999"
    """First and last; null: the kernel's own."""
    network_policy: NetworkPolicyConfig = Field(default_factory=NetworkPolicyConfig)
    pod_disruption_budget: bool = True

    namespaces: tuple[str, ...] = ()
    """Which namespaces' jobs are served; none: all of the cluster."""
    workers: Annotated[int, Field(ge=1, le=1024)] = 4
    """Jobs that are worked on at the same time. More make no pod come sooner once the API server is busy, but each pass
    longer."""
    qps: Positive = 500.0
    """Requests a second to the API server, in the long run."""
    burst: Annotated[int, Field(ge=1)] = 500
    """Requests that may be made at once after a quiet time."""
    request_seconds: Positive = 20.0
    """A request that takes longer is given up."""
    resync_seconds: Positive = 120.0
    """How often everything is listed anew, in case a watch has missed something."""
    http_port: Port = 8080
    """Where /healthz, /readyz and /metrics are served."""
    log: LogConfig = Field(default_factory=LogConfig)
    leader_election: LeaderElectionConfig = Field(default_factory=LeaderElectionConfig)
    key_secret: KeySecretConfig = Field(default_factory=KeySecretConfig)

    @property
    def settings(self) -> Settings:
        """What enters the plans."""
        first, _, last = (self.rpc_ports or "").partition("-")
        return Settings(
            image=self.trainer_image,
            image_pull_policy=self.image_pull_policy,
            image_pull_secrets=self.image_pull_secrets,
            priority_class=self.priority_class,
            progress_seconds=self.progress_seconds,
            rpc_ports=(int(first), int(last)) if first else None,
            network_policy=self.network_policy.enabled,
            operator_peer=self.network_policy.operator,
            metrics_peer=self.network_policy.prometheus,
            pod_disruption_budget=self.pod_disruption_budget,
        )


def load_config(path: Path | None) -> Config:
    """From a file; without one the defaults. Raises `ConfigError`."""
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
