"""Exports the numbers of a member to Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Literal, NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

Numbers = Mapping[str, float | None]
"""Numbers by the name of their curve, or by another name without one. None: no value yet."""


class Known(NamedTuple):
    """The description of a metric for Prometheus."""

    name: str
    """The exported name."""
    kind: Literal["counter", "gauge"]
    help: str
    labels: Mapping[str, str] = {}
    """Labels that distinguish metrics with the same name."""


def _counter(name: str, text: str, **labels: str) -> Known:
    return Known(f"rltraining_{name}_total", "counter", text, labels)


def _gauge(name: str, text: str, **labels: str) -> Known:
    return Known(f"rltraining_{name}", "gauge", text, labels)


def _dataflow(item: str, used: str) -> dict[str, Known]:
    """Describes the counters of a dataflow. Invariant: pushed = used + dropped + queued."""
    return {
        f"{item}/pushed": _counter("dataflow_pushed", "Items received from samplers", item=item),
        f"{item}/{used}": _counter("dataflow_used", "Items used in updates", item=item),
        f"{item}/dropped": _counter("dataflow_dropped", "Items received and never used", item=item),
        f"{item}/queued": _gauge("dataflow_queued", "Items queued for an update", item=item),
    }


METRICS: dict[str, Known] = {
    "seconds": _counter("learner_training_seconds", "Seconds since the first experience, over all restarts"),
    "environmentSteps": _counter("learner_environment_steps", "Environment steps used in updates"),
    "episodes": _counter("learner_episodes", "Episodes that ended"),
    "episodes/discarded": _counter("learner_episodes_discarded", "Episodes discarded because environments failed"),
    "updates": _counter("learner_updates", "Updates of the parameters"),
    "meanReturn": _gauge("learner_mean_return", "Mean return of the last episodes"),
    "stepsPerSecond": _gauge("learner_environment_steps_per_second", "Environment steps per second, over the last 5 s"),
    "policyLag": _gauge("learner_policy_lag", "Mean number of versions by which acting policies are behind the newest"),
    "policyLag/p50": _gauge("learner_policy_lag_quantile", "Quantile of the policy lag of recent data", quantile="0.5"),
    "policyLag/p99": _gauge("learner_policy_lag_quantile", "Quantile of the policy lag of recent data", quantile="0.99"),
    "learningRate": _gauge("learner_learning_rate", "Learning rate of the optimizer"),
    "learner/waitSeconds": _counter("learner_wait_seconds", "Seconds that the learner has waited for data"),
    "parameters/version": _gauge("learner_parameter_version", "Version of the newest parameters"),
    "parameters/bytesSent": _counter("learner_parameters_sent_bytes", "Bytes of parameters sent to samplers"),
    "evaluation/environmentSteps": _gauge("evaluation_environment_steps", "Steps at which the last policy was taken"),
    "evaluation/return": _gauge("evaluation_return", "Mean return of the last evaluation"),
    "evaluation/std": _gauge("evaluation_return_std", "Standard deviation of the returns of the last evaluation"),
    "evaluation/min": _gauge("evaluation_return_min", "Lowest return of the last evaluation"),
    "evaluation/max": _gauge("evaluation_return_max", "Highest return of the last evaluation"),
    "evaluation/length": _gauge("evaluation_episode_length", "Mean length of the episodes of the last evaluation, in steps"),
    "evaluation/best": _gauge("evaluation_best_return", "Mean return of the best evaluation (its policy is stored)"),
    "evaluation/count": _counter("evaluations", "Completed evaluations"),
    "evaluation/merged": _counter("evaluations_merged", "Due evaluations skipped in favour of a later one"),
    "evaluation/restarts": _counter("evaluator_restarts", "Lost evaluator processes"),
    **_dataflow("unrolls", "used"),
    **_dataflow("gradients", "applied"),
    "unrolls/stale": _counter("dataflow_stale", "Items dropped because their parameters were too old", item="unrolls"),
    "gradients/stale": _counter("dataflow_stale", "Items dropped because their parameters were too old", item="gradients"),
    "replay/shards": _gauge("replay_shards", "Shards of the replay that answer"),
    "replay/size": _gauge("replay_transitions", "Transitions in the replay"),
    "replay/smallestShard": _gauge("replay_smallest_shard_transitions", "Transitions in the smallest shard"),
    "replay/largestShard": _gauge("replay_largest_shard_transitions", "Transitions in the largest shard"),
    "replay/inserted": _counter("replay_inserted", "Transitions inserted"),
    "replay/evicted": _counter("replay_evicted", "Transitions evicted by newer ones"),
    "replay/lost": _gauge("replay_lost_transitions", "Transitions lost with their shard, or in a shard that does not answer"),
    "replay/restarted": _counter("replay_shard_restarts", "Restarts of shards"),
    "replay/sampled": _counter("replay_sampled", "Transitions sampled"),
    "replay/prioritiesApplied": _counter("replay_priorities_applied", "Samples whose new priority was applied"),
    "replay/prioritiesStale": _counter("replay_priorities_stale", "Samples evicted before their new priority arrived"),
    "replay/prioritiesLost": _counter("replay_priorities_lost", "Samples whose new priority never arrived"),
    "replay/outstanding": _gauge("replay_outstanding", "Samples requested, in use, or not acknowledged yet"),
    "replay/ratio": _gauge("replay_ratio", "Samples per insertion since the start"),
    "replay/sampleAge": _gauge("replay_sample_age", "Mean number of insertions since a sampled transition was added"),
    "shard/size": _gauge("shard_transitions", "Transitions in the shard of this member"),
    "shard/inserted": _counter("shard_inserted", "Transitions inserted into the shard of this member"),
    "shard/evicted": _counter("shard_evicted", "Transitions evicted from the shard of this member"),
    "sampler/environmentSteps": _counter("sampler_environment_steps", "Environment steps taken in this process"),
    "sampler/episodes": _counter("sampler_episodes", "Episodes that ended in this process"),
    "sampler/episodesDiscarded": _counter("sampler_episodes_discarded", "Episodes discarded because environments failed"),
    "sampler/environmentSeconds": _counter("sampler_environment_seconds", "Seconds spent in stepping environments"),
    "sampler/waitSeconds": _counter("sampler_wait_seconds", "Seconds that the sampler has waited for other members"),
    "sampler/reconnects": _counter("sampler_reconnects", "Repeated connections to learners and replay pods"),
    "sampler/parameterVersion": _gauge("sampler_parameter_version", "Version of the acting parameters"),
}  # fmt: skip
"""Metrics by the name of the number."""

INFO = Known("rltraining_member_info", "gauge", "1; the labels describe this member")
LOSS = Known("rltraining_learner_loss", "gauge", "Terms of the loss, of the last update")
LOSS_PREFIX = "loss/"


class MemberCollector(Collector):
    """Reads the numbers at each scrape. Unknown names are ignored."""

    def __init__(self, info: Mapping[str, str], read: Callable[[], Numbers]) -> None:
        self._info, self._read = dict(info), read

    def collect(self) -> Iterator[Metric]:
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        self._add(families, INFO, self._info, 1.0)
        for number, value in self._read().items():
            if value is None:
                continue
            if number.startswith(LOSS_PREFIX):
                self._add(families, LOSS, {"term": number.removeprefix(LOSS_PREFIX)}, value)
            elif (known := METRICS.get(number)) is not None:
                self._add(families, known, known.labels, value)
        yield from families.values()

    def _add(
        self,
        families: dict[str, CounterMetricFamily | GaugeMetricFamily],
        known: Known,
        labels: Mapping[str, str],
        value: float,
    ) -> None:
        if known.name not in families:
            family = CounterMetricFamily if known.kind == "counter" else GaugeMetricFamily
            families[known.name] = family(known.name, known.help, labels=list(labels))
        families[known.name].add_metric(list(labels.values()), value)


def exposition(info: Mapping[str, str], read: Callable[[], Numbers]) -> Callable[[], bytes]:
    """Returns a function that renders ``read()`` and the resource usage of the process for a
    scrape.

    ``info``: labels that describe this member.
    """
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(MemberCollector(info, read))
    return lambda: generate_latest(registry)
