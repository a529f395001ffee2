"""Every metric that is exported: what an operator shows that has seen one of everything, and what members may show."""

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
"""The module alone: its package imports torch, which takes seconds."""
INFO, LOSS, METRICS = MEMBERS.INFO, MEMBERS.LOSS, MEMBERS.METRICS
NO_CURVES = {"learner/waitSeconds", "parameters/version"}
"""Numbers that only Prometheus is told, besides those of samplers and shards."""


@dataclass
class Exported:
    """One metric."""

    kind: str
    help: str
    labels: set[str] = field(default_factory=set)
    curves: list[str] = field(default_factory=list)
    """Of the same values, in progress.jsonl and TensorBoard."""
    samples: set[str] = field(default_factory=set)
    """What it is called in queries."""


def of_the_operator() -> dict[str, Exported]:
    """By name; those of its process are `of_a_process`."""
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
    """What operator and members tell of their own process."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return _read(registry)


def of_members() -> dict[str, Exported]:
    """By name; with their curves."""
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
