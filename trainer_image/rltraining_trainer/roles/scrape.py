"""Prometheus metrics of members, except the metrics of a learner's data path and record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rltraining_trainer.dataflow.replay import ReplayShard
from rltraining_trainer.environments import StepperStats
from rltraining_trainer.metrics import Numbers

if TYPE_CHECKING:
    from rltraining_trainer.world.session import MemberSession


def stepped(counts: Sequence[StepperStats]) -> Numbers:
    """Returns the metrics of a sampler's environments."""
    return {
        "sampler/environmentSteps": sum(one.steps for one in counts),
        "sampler/episodes": sum(one.episodes for one in counts),
        "sampler/episodesDiscarded": sum(one.discarded for one in counts),
        "sampler/environmentSeconds": sum(one.seconds for one in counts),
    }


def linked(sessions: Sequence[MemberSession]) -> Numbers:
    """Returns the metrics of a sampler's connections."""
    version = next((session.version for session in sessions if hasattr(session, "version")), None)
    return {
        "sampler/waitSeconds": sum(session.wait_seconds for session in sessions),
        "sampler/reconnects": sum(session.reconnects for session in sessions),
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
