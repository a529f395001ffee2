"""What Prometheus reads of a member: numbers that are there anyway, under names that say what they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Literal, NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

Numbers = Mapping[str, float | None]
"""By the names of the curves, with those that only Prometheus is told. None: there is none yet."""


class Known(NamedTuple):
    """A metric: what one number of a member is to Prometheus."""

    name: str
    """As it is exported."""
    kind: Literal["counter", "gauge"]
    help: str
    labels: Mapping[str, str] = {}
    """Those that set it apart from others of its name."""


def _counter(name: str, text: str, **labels: str) -> Known:
    return Known(f"rltraining_{name}_total", "counter", text, labels)


def _gauge(name: str, text: str, **labels: str) -> Known:
    return Known(f"rltraining_{name}", "gauge", text, labels)


def _account(item: str, used: str) -> dict[str, Known]:
    """Of a dataflow: pushed = used + dropped + queued."""
    return {
        f"{item}/pushed": _counter("dataflow_pushed", "What samplers have sent", item=item),
        f"{item}/{used}": _counter("dataflow_used", "What updates have been made of", item=item),
        f"{item}/dropped": _counter("dataflow_dropped", "What came and was never used", item=item),
        f"{item}/queued": _gauge("dataflow_queued", "What waits for an update", item=item),
    }


METRICS: dict[str, Known] = {
    "seconds": _counter("learner_training_seconds", "Seconds since the first experience, over all restarts"),
    "environmentSteps": _counter("learner_environment_steps", "Environment steps learnt from"),
    "episodes": _counter("learner_episodes", "Episodes that ended"),
    "episodes/discarded": _counter("learner_episodes_discarded", "Episodes discarded because environments failed"),
    "updates": _counter("learner_updates", "Updates of the parameters"),
    "meanReturn": _gauge("learner_mean_return", "Mean return of the last episodes"),
    "stepsPerSecond": _gauge("learner_environment_steps_per_second", "Environment steps a second, of the last 5 s"),
    "policyLag": _gauge("learner_policy_lag", "Versions by which policies that act are older than the newest, on average"),
    "learningRate": _gauge("learner_learning_rate", "Learning rate of the optimizer"),
    "learner/waitSeconds": _counter("learner_wait_seconds", "Seconds for which the learner has waited for data"),
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
    **_account("unrolls", "used"),
    **_account("gradients", "applied"),
    "unrolls/stale": _counter("dataflow_stale", "Items dropped because their parameters were too old", item="unrolls"),
    "gradients/stale": _counter("dataflow_stale", "Items dropped because their parameters were too old", item="gradients"),
    "replay/shards": _gauge("replay_shards", "Shards of the replay memory that answer"),
    "replay/size": _gauge("replay_transitions", "Transitions in the replay memory"),
    "replay/smallestShard": _gauge("replay_smallest_shard_transitions", "Transitions in the smallest shard"),
    "replay/largestShard": _gauge("replay_largest_shard_transitions", "Transitions in the largest shard"),
    "replay/inserted": _counter("replay_inserted", "Transitions inserted"),
    "replay/evicted": _counter("replay_evicted", "Transitions evicted, since newer ones needed their place"),
    "replay/lost": _gauge("replay_lost_transitions", "Transitions lost with their shard, or in one that is silent"),
    "replay/restarted": _counter("replay_shard_restarts", "Shards that took the place of a lost one"),
    "replay/sampled": _counter("replay_sampled", "Draws of a transition"),
    "replay/prioritiesApplied": _counter("replay_priorities_applied", "Draws whose new priority was applied"),
    "replay/prioritiesStale": _counter("replay_priorities_stale", "Draws evicted before their new priority came"),
    "replay/prioritiesLost": _counter("replay_priorities_lost", "Draws whose new priority never came"),
    "replay/outstanding": _gauge("replay_outstanding", "Draws on their way, in use, or not acknowledged yet"),
    "replay/ratio": _gauge("replay_ratio", "Draws for each insertion, since the beginning"),
    "replay/sampleAge": _gauge("replay_sample_age", "Insertions into its shard since a drawn transition was added, on average"),
    "shard/size": _gauge("shard_transitions", "Transitions in the shard that this member keeps"),
    "shard/inserted": _counter("shard_inserted", "Transitions inserted into the shard that this member keeps"),
    "shard/evicted": _counter("shard_evicted", "Transitions evicted from the shard that this member keeps"),
    "sampler/environmentSteps": _counter("sampler_environment_steps", "Environment steps that this process took"),
    "sampler/episodes": _counter("sampler_episodes", "Episodes that ended in this process"),
    "sampler/episodesDiscarded": _counter("sampler_episodes_discarded", "Episodes discarded because environments failed"),
    "sampler/environmentSeconds": _counter("sampler_environment_seconds", "Seconds spent in stepping environments"),
    "sampler/waitSeconds": _counter("sampler_wait_seconds", "Seconds for which the sampler has waited for others"),
    "sampler/reconnects": _counter("sampler_reconnects", "Connections to learners and replay pods that were made anew"),
    "sampler/parameterVersion": _gauge("sampler_parameter_version", "Version of the parameters that act"),
}  # fmt: skip
"""By the name of the number."""

INFO = Known("rltraining_member_info", "gauge", "1; the labels say what this member is")
LOSS, LOSS_PREFIX = (
    Known("rltraining_learner_loss", "gauge", "Terms of the loss, of the last update"),
    "loss/",
)


class MemberCollector(Collector):
    """Reads numbers off when it is asked. One of no known name is passed over."""

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
    """What a scrape is answered with: ``read()``, and what the process needs of the machine. ``info``: what this member is."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(MemberCollector(info, read))
    return lambda: generate_latest(registry)
