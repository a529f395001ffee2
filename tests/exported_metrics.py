"""Lists every exported metric: the operator's after one event of each kind, and the members'."""

from __future__ import annotations

import runpy
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from rltraining_api.names import KIND, LABEL_ROLE
from rltraining_operator.cluster import Ref
from rltraining_operator.kube.metrics import Metrics, StateCollector
from rltraining_operator.kube.store import Store

EXPOSITION = Path(__file__).parents[1] / "trainer_image/rltraining_trainer/metrics/exposition.py"
MEMBERS = SimpleNamespace(**runpy.run_path(str(EXPOSITION)))
"""The module without its package, which imports torch and takes seconds."""
INFO, LOSS, METRICS = MEMBERS.INFO, MEMBERS.LOSS, MEMBERS.METRICS
NO_CURVES = {"learner/waitSeconds", "parameters/version"}
"""Curves that only Prometheus receives, besides the curves of samplers and shards."""


@dataclass
class Exported:
    """One metric."""

    kind: str
    help: str
    labels: set[str] = field(default_factory=set)
    curves: list[str] = field(default_factory=list)
    """The curves with the same values, in progress.jsonl and TensorBoard."""
    samples: set[str] = field(default_factory=set)
    """The metric's names in queries."""


def of_the_operator() -> dict[str, Exported]:
    """Returns the operator's metrics by name, without the process metrics of `of_a_process`."""
    metrics, store = Metrics(), Store()
    metadata = {"name": "a", "namespace": "b", "uid": "c", "resourceVersion": "1"}
    store.put(KIND, {"metadata": metadata, "status": {"phase": "Running"}})
    metrics.registry.register(StateCollector(store, (), lambda: 0))
    metrics.request("GET", "pods", "200", 0.1)
    metrics.waited(0.1)
    metrics.passed(0.1, ValueError())
    metrics.created({"kind": "Pod", "metadata": {"labels": {LABEL_ROLE: "learner"}}})
    metrics.deleted(Ref("Pod", "a-learner-0"))
    ended = {"failures": 1, "disruptions": 1, "completionTime": "now", "phase": "Failed"}
    metrics.status_written({}, ended, "impala")
    return {name: one for name, one in _read(metrics.registry).items() if name.startswith("rltraining")}


def of_a_process() -> dict[str, Exported]:
    """Returns the process metrics that the operator and the members export."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return _read(registry)


def of_members() -> dict[str, Exported]:
    """Returns the members' metrics by name, with their curves."""
    found = {
        INFO.name: Exported(INFO.kind, INFO.help, {"role", "algorithm"}),
        LOSS.name: Exported(LOSS.kind, LOSS.help, {"term"}, [f"{MEMBERS.LOSS_PREFIX}*"]),
    }
    for curve, known in METRICS.items():
        one = found.setdefault(known.name, Exported(known.kind, known.help))
        one.labels |= set(known.labels)
        if not curve.startswith(("sampler/", "shard/")) and curve not in NO_CURVES:
            one.curves.append(curve)
    for name, one in found.items():
        one.samples = {name}
    return found


def _read(registry: Collector) -> dict[str, Exported]:
    return {_name(metric): _exported(metric) for metric in registry.collect()}


def _name(metric: Metric) -> str:
    return f"{metric.name}_total" if metric.type == "counter" else metric.name


def _exported(metric: Metric) -> Exported:
    labels = {label for sample in metric.samples for label in sample.labels} - {"le"}
    return Exported(
        metric.type, metric.documentation, labels, samples={sample.name for sample in metric.samples}
    )
