"""The operator accepts the settings file that the chart writes, and the settings match the chart's values."""

from __future__ import annotations

from pathlib import Path

from helm import APP_VERSION, EVERYTHING, NAMESPACE, RELEASE, Helm, Rendered
from rltraining_operator.kube.config import (
    Config,
    KeySecretConfig,
    LeaderElectionConfig,
    LogConfig,
    NetworkPolicyConfig,
    ResourcesConfig,
    load_config,
)


def _load(rendered: Rendered, folder: Path) -> Config:
    path = folder / "config.yaml"
    path.write_text(rendered.config_text)
    return load_config(path)


OPERATOR = {
    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}},
    "podSelector": {
        "matchLabels": {
            "app.kubernetes.io/name": "rltraining-operator",
            "app.kubernetes.io/instance": RELEASE,
            "app.kubernetes.io/component": "operator",
        }
    },
}
"""The peers that may query a job's learners: pods of this release, in its namespace."""


def test_the_values_defaults_are_the_operators_own(defaults: Rendered, tmp_path: Path) -> None:
    assert _load(defaults, tmp_path) == Config(
        trainer_image=f"rltraining-trainer:{APP_VERSION}",
        image_pull_policy="IfNotPresent",
        log=LogConfig(format="json"),
        leader_election=LeaderElectionConfig(lease_name=RELEASE, lease_namespace=NAMESPACE),
        key_secret=KeySecretConfig(name=f"{RELEASE}-key", namespace=NAMESPACE),
        network_policy=NetworkPolicyConfig(operator=OPERATOR),
        resources={
            "learner": ResourcesConfig(requests={"cpu": "250m", "memory": "512Mi"}),
            "replay": ResourcesConfig(requests={"cpu": "100m", "memory": "512Mi"}),
            "sampler": ResourcesConfig(requests={"cpu": "250m", "memory": "512Mi"}),
        },
    )


def test_every_setting_can_be_said(helm: Helm, tmp_path: Path) -> None:
    values = {
        **EVERYTHING,
        "trainerImage": {
            "registry": "localhost:5000",
            "repository": "rl/trainer",
            "tag": "main",
            "pullPolicy": "Always",
        },
        "operator": {
            "workers": 3,
            "qps": 7.5,
            # helm would write 1e+05 unless the template converts the value to an integer.
            "burst": 100_000,
            "progressSeconds": 2.5,
            "resyncSeconds": 3_600,
            "httpPort": 9000,
        },
        "log": {"level": "debug", "format": "text"},
        "leaderElection": {"leaseSeconds": 60, "renewSeconds": 40, "retrySeconds": 5},
    }
    monitor = {**EVERYTHING["metrics"]["podMonitor"], "perJob": True, "interval": "1m"}
    values["metrics"] = {**EVERYTHING["metrics"], "podMonitor": monitor}
    values["jobs"] = {
        **EVERYTHING["jobs"],
        "rpcPorts": "30000-40000",
        "learnerEviction": "Refuse",
        "encryption": "TLS",
        "samplerPriorityClass": {"name": "low"},
    }
    config = _load(helm.render(values), tmp_path)
    settings = config.settings
    assert settings.image == "localhost:5000/rl/trainer:main"
    assert settings.image_pull_policy == "Always"
    assert settings.image_pull_secrets == ("registry",)
    assert (settings.priority_class, settings.sampler_priority_class) == ("training", "low")
    assert settings.resources["learner"] == {
        "requests": {"cpu": "250m", "memory": "512Mi"},
        "limits": {"nvidia.com/gpu": 1},
    }
    assert settings.resources["sampler"]["requests"] == {"cpu": 2, "memory": "512Mi"}
    assert settings.node_selector == {"pool": "training", "spot": "true"}
    assert settings.tolerations == tuple(EVERYTHING["jobs"]["tolerations"])
    assert settings.runtime_class == "nvidia"
    assert settings.progress_seconds == 2.5
    assert settings.rpc_ports == (30_000, 40_000)
    assert settings.network_policy
    assert settings.metrics_peer == EVERYTHING["jobs"]["networkPolicy"]["prometheus"]
    assert (settings.pod_monitor_interval, settings.pod_monitor_labels) == ("1m", {"release": "prometheus"})
    assert settings.learner_eviction == "Refuse"
    assert settings.encryption == "TLS"
    assert config.namespaces == ("team-a", "team-b")
    assert (config.workers, config.qps, config.burst) == (3, 7.5, 100_000)
    assert (config.resync_seconds, config.http_port) == (3_600, 9_000)
    assert config.log == LogConfig(level="debug", format="text")
    assert config.leader_election == LeaderElectionConfig(
        lease_name=RELEASE, lease_namespace=NAMESPACE, lease_seconds=60, renew_seconds=40, retry_seconds=5
    )


def test_a_key_without_a_value_in_a_values_file_means_none(helm: Helm, tmp_path: Path) -> None:
    values = {"watchNamespaces": None, "jobs": {"priorityClassName": None, "runtimeClassName": None}}
    config = _load(helm.render(values), tmp_path)
    assert config.namespaces == ()
    assert (config.priority_class, config.runtime_class) == ("", "")


def test_jobs_admit_the_operator_that_the_chart_installs(defaults: Rendered, tmp_path: Path) -> None:
    """The NetworkPolicy of a job names the operator's pods by their namespace and by labels that only this release has."""
    assert _load(defaults, tmp_path).settings.operator_peer == OPERATOR
    pods = defaults.one("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert OPERATOR["podSelector"]["matchLabels"].items() <= pods.items()
