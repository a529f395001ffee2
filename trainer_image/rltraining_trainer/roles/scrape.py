"""Prometheus metrics of members, except the metrics of a learner's data path and record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rltraining_api.names import Role

from rltraining_trainer.dataflow import ModelServer
from rltraining_trainer.dataflow.replay import ReplayShard
from rltraining_trainer.environments import Stepper, StepperStats
from rltraining_trainer.metrics import Numbers, exposition
from rltraining_trainer.roles.context import Context
from rltraining_trainer.roles.link import LearnerLink, Link
from rltraining_trainer.transport import MemberServer


def scraped(context: Context, role: Role, read: Callable[[], Numbers]) -> Callable[[], bytes]:
    """Returns this member's metrics page. ``read`` must be thread-safe."""
    return exposition({"role": role, "algorithm": context.job.spec.algorithm.name}, read)


def serve_sampler(
    context: Context,
    ready: Callable[[], bool],
    stepper: Stepper,
    links: Sequence[Link],
    shard: ReplayShard | None = None,
) -> None:
    """Starts the HTTP server of probes and metrics, and the reports of discarded episodes.

    Args:
        context: The member's addresses and token.
        ready: Whether the sampler is ready.
        stepper: Counts steps and episodes.
        links: Connections, the learner first. Their waiting times are measured. More may be added
            later.
        shard: The sampler's replay shard, if it has one.
    """
    for link in links:
        if isinstance(link, LearnerLink):
            link.stats = stepper.stats

    def read() -> Numbers:
        return {
            **stepped([stepper.stats]),
            **linked(tuple(links)),
            **(kept_numbers(shard) if shard is not None else {}),
        }

    metrics = scraped(context, "sampler", read)
    host = context.http_host
    MemberServer(
        context.http_port, context.token, ready=ready, documents={}, metrics=metrics, host=host
    ).start()


def stepped(counts: Sequence[StepperStats]) -> Numbers:
    """Returns the metrics of a sampler's environments."""
    return {
        "sampler/environmentSteps": sum(one.steps for one in counts),
        "sampler/episodes": sum(one.episodes for one in counts),
        "sampler/episodesDiscarded": sum(one.discarded for one in counts),
        "sampler/environmentSeconds": sum(one.seconds for one in counts),
    }


def linked(links: Sequence[Link]) -> Numbers:
    """Returns the metrics of a sampler's connections."""
    version = next((link.version for link in links if isinstance(link, LearnerLink)), None)
    return {
        "sampler/waitSeconds": sum(link.wait_seconds for link in links),
        "sampler/reconnects": sum(link.reconnects for link in links),
        "sampler/parameterVersion": version,
    }


def kept_numbers(shard: ReplayShard) -> Mapping[str, float]:
    """Returns the metrics of a member's replay shard."""
    counts = shard.counts
    return {
        "shard/size": counts.inserted - counts.evicted,
        "shard/inserted": counts.inserted,
        "shard/evicted": counts.evicted,
    }


def published(models: ModelServer) -> Numbers:
    """Returns the metrics of the parameters that a learner publishes."""
    return {"parameters/version": models.version, "parameters/bytesSent": models.bytes_sent}
