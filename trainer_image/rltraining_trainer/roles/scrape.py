"""What members tell Prometheus, besides what a learner's flow and record know."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rltraining_api.names import Role

from rltraining_trainer.dataflow import ModelServer
from rltraining_trainer.dataflow.replay import ReplayShard
from rltraining_trainer.environments import Stepped, Stepper
from rltraining_trainer.metrics import Numbers, exposition
from rltraining_trainer.roles.context import Context
from rltraining_trainer.roles.link import LearnerLink, Link
from rltraining_trainer.transport import MemberServer


def scraped(context: Context, role: Role, read: Callable[[], Numbers]) -> Callable[[], bytes]:
    """What this member answers Prometheus with. ``read`` is called from the HTTP server's threads."""
    return exposition({"role": role, "algorithm": context.job.spec.algorithm.name}, read)


def serve_sampler(
    context: Context,
    ready: Callable[[], bool],
    stepper: Stepper,
    links: Sequence[Link],
    shard: ReplayShard | None = None,
) -> None:
    """Begin to answer probes and Prometheus, and to report discarded episodes to learners. ``links``: to all whom it waits
    for, the learner first; more may come."""
    for link in links:
        if isinstance(link, LearnerLink):
            link.stepped = stepper.stepped

    def read() -> Numbers:
        return {
            **stepped([stepper.stepped]),
            **linked(tuple(links)),
            **(kept_numbers(shard) if shard is not None else {}),
        }

    metrics = scraped(context, "sampler", read)
    host = context.http_host
    MemberServer(
        context.http_port, context.token, ready=ready, documents={}, metrics=metrics, host=host
    ).start()


def stepped(counts: Sequence[Stepped]) -> Numbers:
    """What a sampler's environments came to."""
    return {
        "sampler/environmentSteps": sum(one.steps for one in counts),
        "sampler/episodes": sum(one.episodes for one in counts),
        "sampler/episodesDiscarded": sum(one.discarded for one in counts),
        "sampler/environmentSeconds": sum(one.seconds for one in counts),
    }


def linked(links: Sequence[Link]) -> Numbers:
    """A sampler's way to others."""
    version = next((link.version for link in links if isinstance(link, LearnerLink)), None)
    return {
        "sampler/waitSeconds": sum(link.wait_seconds for link in links),
        "sampler/reconnects": sum(link.reconnects for link in links),
        "sampler/parameterVersion": version,
    }


def kept_numbers(shard: ReplayShard) -> Mapping[str, float]:
    """The shard that a member keeps."""
    counts = shard.counts
    return {
        "shard/size": counts.inserted - counts.evicted,
        "shard/inserted": counts.inserted,
        "shard/evicted": counts.evicted,
    }


def published(models: ModelServer) -> Numbers:
    """The parameters that a learner gives out."""
    return {"parameters/version": models.version, "parameters/bytesSent": models.bytes_sent}
