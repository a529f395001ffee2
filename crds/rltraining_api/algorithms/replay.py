"""`spec.algorithm.*.replay`: the memory that Ape-X learns from."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from rltraining_api.base import ApiModel, ByTask, Rule, refusal
from rltraining_api.fields import Count, Fraction, Positive


class Replay(ApiModel):
    """A memory of transitions, in shards that are drawn from as if they were one (arXiv 1803.00933, section 3)."""

    placement: Literal["Samplers", "Learner", "Dedicated"] = "Samplers"
    """Who keeps the shards. Samplers: each keeps what it has seen, so that only what is drawn travels. Learner: the first
    learner keeps all. Dedicated: pods of their own, `spec.replay.replicas` of them (paper: a memory of its own)."""
    kind: Literal["Prioritized", "Uniform"] = "Prioritized"
    """Whether transitions are drawn by their priority, or all alike (paper: Prioritized)."""
    capacity: ByTask[Count] = 2_000_000
    """Transitions kept in all shards together; the oldest of a shard go first (paper: 2,000,000)."""
    minimum: ByTask[Count] = 50_000
    """Transitions in all shards together before learning starts (paper: 50,000)."""
    priority_exponent: Fraction = 0.6
    """α: how strongly priorities shape the draw; 0 draws uniformly (paper: .6)."""
    importance_exponent: Fraction = 0.4
    """β: how far importance weights undo the draw's bias; 1 does wholly (paper: .4)."""
    importance_normalizer: Literal["Batch", "Buffer"] = "Batch"
    """What importance weights are divided by: the largest of the batch, or the largest that any transition in the memory
    would have (Schaul et al. 2016 leave it open; Batch is usual)."""
    samples_per_insert: ByTask[Positive | None] = None
    """How often each transition is drawn on average: learner and samplers wait for each other to keep to it.
    Without, neither waits (the paper's run came to about .8)."""
    samples_per_insert_tolerance: Positive = 0.1
    """How far draws may run ahead or lag behind, as a fraction of samplesPerInsert x minimum (Acme: .1)."""
    prefetch: Annotated[int, Field(ge=1, le=64)] = 4
    """Batches that are on their way while the learner uses one (paper: up to 16). More hide a slow network and take fewer
    messages, with older priorities."""
    frame_stack: Annotated[int, Field(ge=1, le=64)] = 1
    """Observations are stacks of so many frames along their first axis; each frame is then kept once, not in every stack
    that it is part of. 1: observations are kept as they are."""
    checkpoint: bool = False
    """Save the shards too, every `checkpoint.everySeconds`, at `checkpoint.uri`, or without one on the disk of the pod that
    keeps it: a shard that is restarted goes on with what was saved there. Otherwise it begins empty."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.capacity) || !has(self.minimum) || self.capacity >= self.minimum",
            "replay.capacity must be at least replay.minimum",
        ),
    )

    @model_validator(mode="after")
    def _minimum_fits(self) -> Self:
        if self.has_set("capacity", "minimum") and self.minimum > self.capacity:
            raise refusal(
                f"replay.capacity must be at least replay.minimum ({self.minimum}), got {self.capacity}"
            )
        return self


class DdpgReplay(Replay):
    """A memory of transitions, in shards that are drawn from as if they were one (arXiv 1803.00933, appendix)."""

    capacity: ByTask[Count] = 1_000_000
    """Maximum number of transitions in all shards together. The oldest of a shard are evicted
    (paper: 1,000,000 with the lowest priorities evicted, which needs a second tree for an
    unpublished gain)."""
    minimum: ByTask[Count] = 10_000
    """Transitions in all shards together before learning starts (not published)."""


class UniformReplay(Replay):
    """The replay memory of SAC and TD3, in shards that are sampled as if they were one."""

    kind: Literal["Prioritized", "Uniform"] = "Uniform"
    """How transitions are sampled: by their priority, or uniformly (SAC and TD3 papers: Uniform)."""
    capacity: ByTask[Count] = 1_000_000
    """Maximum number of transitions in all shards together. The oldest of a shard are evicted
    (SAC paper: 1,000,000)."""
    minimum: ByTask[Count] = 10_000
    """Transitions in all shards together before learning starts. Until then actions are uniformly
    random (Spinning Up's SAC and TD3: 10,000)."""
    samples_per_insert: ByTask[Positive | None] = 256.0
    """How often each transition is sampled on average: learner and samplers wait for each other.
    With the same value as batchSize there is one update per environment step (papers: one). null:
    neither waits."""
    samples_per_insert_tolerance: Positive = 0.01
    """How far samples may run ahead or lag behind, as a fraction of samplesPerInsert x minimum. The
    default allows 100 environment steps without an update (papers: 0)."""
