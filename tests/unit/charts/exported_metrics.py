"""Every metric that is exported: what an operator shows that has seen one of everything, and what members may show."""

from __future__ import annotations

from rltraining_api.names import KIND, LABEL_ROLE
from rltraining_operator.cluster import Ref
from rltraining_operator.kube.metrics import Metrics, StateCollector
from rltraining_operator.kube.store import Store
from rltraining_trainer.metrics.exposition import INFO, LOSS, METRICS

Labels = dict[str, set[str]]
"""By the name of a sample."""


def of_the_operator() -> Labels:
    """Among them those of its process."""
    metrics, store = Metrics(), Store()
    metadata = {"name": "a", "namespace": "b", "uid": "c", "resourceVersion": "1"}
    store.put(KIND, {"metadata": metadata, "status": {"phase": "Running"}})
    metrics.registry.register(StateCollector(store, (), lambda: 0))
    metrics.request("GET", "pods", "200", 0.1)
    metrics.waited(0.1)
    metrics.passed(0.1, ValueError())
    metrics.created({"kind": "Pod", "metadata": {"labels": {LABEL_ROLE: "learner"}}})
    metrics.deleted(Ref("Pod", "a-learner-0"))
    ended = {
        "failures": 1,
        "disruptions": 1,
        "completionTime": "now",
        "phase": "Failed",
        "algorithm": "impala",
    }
    metrics.status_written({}, ended)
    found: Labels = {}
    for sample in (sample for metric in metrics.registry.collect() for sample in metric.samples):
        found.setdefault(sample.name, set()).update(sample.labels)
    return found


def of_members() -> Labels:
    """Those of their process are called as the operator's."""
    found = {INFO.name: {"role", "algorithm"}, LOSS.name: {"term"}}
    for known in METRICS.values():
        found.setdefault(known.name, set()).update(known.labels)
    return found
