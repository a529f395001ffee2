"""Runs helm on this tree's chart and returns the rendered objects."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts" / "rltraining-operator"
RELEASE = "rltraining-operator"
NAMESPACE = "rltraining-system"
VERSION: str = yaml.safe_load((CHART / "Chart.yaml").read_text())["version"]
APP_VERSION: str = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
KUBERNETES = "1.34.4"
"""The cluster's version that helm assumes when it does not ask a cluster."""

Json = dict[str, Any]
Values = Mapping[str, Any]


class HelmError(Exception):
    """Holds helm's error output."""


@dataclass(frozen=True)
class Rendered:
    """The objects of a release."""

    objects: tuple[Json, ...]

    def kinds(self) -> set[str]:
        """Returns the kinds of all objects."""
        return {found["kind"] for found in self.objects}

    def all(self, kind: str) -> list[Json]:
        """Returns the objects of a kind."""
        return [found for found in self.objects if found["kind"] == kind]

    def one(self, kind: str, name: str | None = None, namespace: str | None = None) -> Json:
        """Returns the only object of a kind, or of that name and namespace."""
        found = [
            each
            for each in self.all(kind)
            if name in (None, each["metadata"]["name"])
            and namespace in (None, each["metadata"].get("namespace"))
        ]
        assert len(found) == 1, f"{len(found)} objects {kind} {name or ''} of {sorted(self.kinds())}"
        return found[0]

    @property
    def pod(self) -> Json:
        """Returns the spec of the operator's pods."""
        return self.one("Deployment")["spec"]["template"]["spec"]

    @property
    def container(self) -> Json:
        """Returns the operator's container."""
        return self.pod["containers"][0]

    @property
    def config_text(self) -> str:
        """Returns the operator's settings file."""
        return self.one("ConfigMap", self.one("Deployment")["metadata"]["name"])["data"]["config.yaml"]

    @property
    def config(self) -> Json:
        """Returns the parsed settings file."""
        return yaml.safe_load(self.config_text)


@dataclass(frozen=True)
class Helm:
    """The program, optionally with a cluster."""

    program: Path
    kubeconfig: Path | None = None

    def run(self, *arguments: str, values: Values | None = None, stdin: str = "") -> str:
        """Returns helm's output. Raises `HelmError`."""
        command = [str(self.program), *arguments]
        if self.kubeconfig is not None:
            command += ["--kubeconfig", str(self.kubeconfig)]
        if values is not None:
            command += ["--values", "-"]
            stdin = json.dumps(values)  # JSON is YAML
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=100)
        if done.returncode:
            raise HelmError(done.stderr + done.stdout)
        return done.stdout

    def template(
        self,
        values: Values | None = None,
        *,
        release: str = RELEASE,
        namespace: str = NAMESPACE,
        chart: Path = CHART,
    ) -> str:
        """Returns the objects of an installation as YAML."""
        options = ["--namespace", namespace, "--kube-version", KUBERNETES]
        return self.run("template", release, str(chart), *options, values=values or {})

    def render(self, values: Values | None = None, **options: Any) -> Rendered:
        """Returns the objects of an installation. Takes the options of `template` and caches equal calls."""
        return _render(self, json.dumps(values or {}), **options)


@cache
def _render(helm: Helm, values: str, **options: Any) -> Rendered:
    text = helm.template(json.loads(values), **options)
    return Rendered(tuple(filter(None, yaml.load_all(text, yaml.CSafeLoader))))


EVERYTHING: Values = {
    "imagePullSecrets": [{"name": "registry"}],
    "crds": {"annotations": {"team": "learning"}},
    "watchNamespaces": ["team-a", "team-b"],
    "replicaCount": 2,
    "jobs": {
        "imagePullSecrets": [{"name": "registry"}],
        "priorityClassName": "training",
        "resources": {"learner": {"limits": {"nvidia.com/gpu": 1}}, "sampler": {"requests": {"cpu": 2}}},
        "nodeSelector": {"pool": "training", "spot": "true"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "runtimeClassName": "nvidia",
        "networkPolicy": {
            "prometheus": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}},
                "podSelector": {
                    "matchExpressions": [{"key": "app", "operator": "In", "values": ["prometheus"]}]
                },
            }
        },
    },
    "gangScheduling": {"enabled": True},
    "serviceAccount": {"annotations": {"team": "learning"}},
    "podAnnotations": {"team": "learning"},
    "podLabels": {"team": "learning"},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": {"nodeAffinity": {}, "podAntiAffinity": {}},
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
    ],
    "priorityClassName": "system-cluster-critical",
    "extraEnv": [{"name": "TZ", "value": "UTC"}],
    "extraArgs": ["--log-level=debug"],
    "metrics": {
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
        "grafanaDashboard": {"enabled": True, "annotations": {"folder": "Learning"}},
    },
    "service": {"annotations": {"team": "learning"}},
    "podDisruptionBudget": {"enabled": True},
    "networkPolicy": {
        "egress": True,
        "metricsFrom": [
            {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
        ],
    },
}
"""Values that enable every option."""
