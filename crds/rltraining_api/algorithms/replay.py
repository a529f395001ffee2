"""`spec.algorithm.*.replay`: the memory that Ape-X learns from."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from rltraining_api.base import ApiModel, ByTask, Rule, refusal
from rltraining_api.fields import Count, Fraction, Positive


class Replay(ApiModel):
    """A memory of transitions, in shards that are sampled as if they were one (arXiv 1803.00933,
    section 3)."""

    placement: Literal["Samplers", "Learner", "Dedicated"] = "Samplers"
    """Where the shards are stored. Samplers: each sampler stores its own transitions, and only
    sampled transitions are sent. Learner: the first learner stores all. Dedicated:
    `spec.replay.replicas` separate pods store them (as in the paper)."""
    kind: Literal["Prioritized", "Uniform"] = "Prioritized"
    """Whether transitions are sampled by their priority or uniformly (paper: Prioritized)."""
    capacity: ByTask[Count] = 2_000_000
    """Maximum number of transitions in all shards together. The oldest of a shard are evicted
    (paper: 2,000,000)."""
    minimum: ByTask[Count] = 50_000
    """Transitions in all shards together before learning starts (paper: 50,000)."""
    priority_exponent: Fraction = 0.6
    """α: how strongly priorities determine the samples; 0 samples uniformly (paper: .6)."""
    importance_exponent: Fraction = 0.4
    """β: how far importance weights correct the bias of the samples; 1 corrects fully (paper:
    .4)."""
    importance_normalizer: Literal["Batch", "Buffer"] = "Batch"
    """Divisor of importance weights. Batch: the largest weight of the batch. Buffer: the largest
    weight of any transition in the memory (Schaul et al. 2016 leave it open; Batch is usual)."""
    samples_per_insert: ByTask[Positive | None] = None
    """How often each transition is sampled on average: learner and samplers wait for each other to
    maintain this ratio. null: neither waits (the paper's run reached about .8)."""
    samples_per_insert_tolerance: Positive = 0.1
    """How far samples may run ahead or lag behind, as a fraction of samplesPerInsert x minimum
    (Acme: .1)."""
    prefetch: Annotated[int, Field(ge=1, le=64)] = 4
    """Batches that are requested in advance while the learner uses one (the paper has up to 16). A larger
    number hides network latency and needs fewer messages, but priorities are older."""
    frame_stack: Annotated[int, Field(ge=1, le=64)] = 1
    """Number of frames that observations stack along their first axis. Each frame is then stored
    once instead of in every stack. 1: observations are stored as they are."""
    checkpoint: bool = False
    """Save the shards too, every `checkpoint.everySeconds`, at `checkpoint.uri`, or without a URI
    on the disk of the shard's pod. A restarted shard continues with the saved transitions. If
    false, it starts empty."""

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
    """A memory of transitions, in shards that are sampled as if they were one (arXiv 1803.00933,
    appendix)."""

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
    default allows 100 environment steps without an update (the papers have 0)."""
