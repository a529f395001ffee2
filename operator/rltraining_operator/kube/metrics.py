"""Defines the metrics for Prometheus. No metric has a job's name as a label, because the number of
label values must be bounded."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client import Counter as Count
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from rltraining_api.names import LABEL_ROLE

from rltraining_operator.cluster import Key, Manifest, Ref
from rltraining_operator.engine import Meter
from rltraining_operator.kube.store import Store
from rltraining_operator.kube.watch import Watch

disable_created_metrics()  # type: ignore[no-untyped-call] # an unused second series for each metric

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics(Meter):
    """All metrics of one operator process."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        count = partial(Count, registry=registry)
        histogram = partial(Histogram, registry=registry, buckets=SECONDS)
        ProcessCollector(registry=registry)
        self.leader = Gauge("rltraining_leader", "Whether this replica leads", registry=registry)
        self.leader.set(0)
        self._created = count("rltraining_pods_created", "Pods made", ["role"])
        self._deleted = count("rltraining_pods_deleted", "Pods deleted by the operator")
        ends = "Ends of pods and containers: failures count against backoffLimit, disruptions do not"
        self._ends = count("rltraining_member_ends", ends, ["kind"])
        self._finished = count("rltraining_jobs_finished", "Jobs that ended", ["result", "algorithm"])
        self._status_writes = count("rltraining_status_writes", "Writes of a job's status")
        self._passes = histogram("rltraining_reconcile_seconds", "One pass over one job")
        waits = "Delay between the time a job is due and its pass"
        self._waits = histogram("rltraining_queue_wait_seconds", waits)
        errors, requests = "Passes that failed and are retried", "Requests to the API server"
        self._errors = count("rltraining_reconcile_errors", errors, ["kind"])
        self._requests = count("rltraining_api_requests", requests, ["verb", "resource", "code"])
        self._request_seconds = histogram("rltraining_api_request_seconds", requests, ["verb"])

    def request(self, verb: str, resource: str, code: str, seconds: float) -> None:
        """Records a request to the API server."""
        self._requests.labels(verb, resource, code).inc()
        if verb != "WATCH":
            self._request_seconds.labels(verb).observe(seconds)

    def waited(self, seconds: float) -> None:
        """Records how long a job has waited for its pass."""
        self._waits.observe(seconds)

    def passed(self, seconds: float, error: BaseException | None) -> None:
        """Records the end of a pass."""
        self._passes.observe(seconds)
        if error is not None:
            self._errors.labels(type(error).__name__).inc()

    def created(self, child: Manifest) -> None:
        """Records a created child."""
        if child["kind"] == "Pod":
            self._created.labels(child["metadata"]["labels"][LABEL_ROLE]).inc()

    def deleted(self, ref: Ref) -> None:
        """Records a deleted child."""
        if ref.kind == "Pod":
            self._deleted.inc()

    def status_written(self, old: Manifest, new: Manifest, algorithm: str) -> None:
        """Records a write of the status, and adds the increase of its counters to the metrics.
        `algorithm` is the field that is set in the spec, since the names of users' modules are not
        bounded."""
        self._status_writes.inc()
        for kind, field in (("failure", "failures"), ("disruption", "disruptions")):
            more = int(new.get(field) or 0) - int(old.get(field) or 0)
            if more > 0:
                self._ends.labels(kind).inc(more)
        if new.get("completionTime") and not old.get("completionTime"):
            self._finished.labels(new.get("phase", ""), algorithm).inc()


class StateCollector(Collector):
    """Gauges that are read from the cache at each scrape."""

    def __init__(self, store: Store, watches: Iterable[Watch], depth: Any) -> None:
        self._store, self._watches, self._depth = store, tuple(watches), depth

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yields the metrics of one scrape."""
        jobs = GaugeMetricFamily("rltraining_jobs", "Jobs", labels=["namespace", "phase"])
        rate = GaugeMetricFamily(
            "rltraining_environment_steps_per_second", "Environment steps a second", labels=["namespace"]
        )
        phases: Counter[tuple[str, str]] = Counter()
        rates: dict[str, float] = {}
        for key, job in self._store.jobs().items():
            phase, speed = _glance(key, job)
            phases[key.namespace, phase] += 1
            rates[key.namespace] = rates.get(key.namespace, 0.0) + speed
        for labels, count in phases.items():
            jobs.add_metric(list(labels), count)
        for namespace, speed in rates.items():
            rate.add_metric([namespace], speed)
        yield jobs
        yield rate
        yield GaugeMetricFamily("rltraining_queue_depth", "Jobs that wait for a pass", value=self._depth())
        age = max((time.monotonic() - watch.last_event for watch in self._watches), default=0.0)
        ages = GaugeMetricFamily(
            "rltraining_watch_age_seconds", "Seconds since the last event of the watch", labels=["resource"]
        )
        ages.add_metric(["pods"], age)
        yield ages


def _glance(key: Key, job: Manifest) -> tuple[str, float]:
    """Returns the phase and the steps per second of a job."""
    status = job.get("status") or {}
    phase = str(status.get("phase") or "Pending")
    speed = float((status.get("progress") or {}).get("stepsPerSecond") or 0.0) if phase == "Running" else 0.0
    return phase, speed
