"""`spec.reproducible`: runs with parameters that depend on the manifest and the seed alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from rltraining_api import patterns
from rltraining_api.base import ApiModel, Rule, any_of
from rltraining_api.fields import Count, Positive
from rltraining_api.roles import ONE_LEARNER

if TYPE_CHECKING:
    from rltraining_api.job import JobSpec

GRADIENTS = ("a2c", "ppo")
"""Reproducible algorithms that can also compute gradients in samplers."""
REPLAYS = ("dqnApex", "ddpgApex", "sac", "td3")
"""Reproducible algorithms with a replay, which the learner keeps."""
REPRODUCIBLE = (*GRADIENTS, "impala", *REPLAYS)
"""The algorithms with a reproducible mode."""

NEEDS_ALGORITHM = f"reproducible is for {any_of(REPRODUCIBLE)}: use one of them, or leave reproducible out"
NEEDS_ONE_LEARNER = "reproducible needs one learner: set learner.replicas to 1"
NEEDS_GRADIENTS_AT_LEARNER = (
    "reproducible needs a learner that computes the gradients of all rollouts: leave gradients, aggregate.mode and "
    "aggregate.count at their defaults"
)
NEEDS_REPLAY_AT_LEARNER = (
    "with reproducible the learner keeps the replay: set replay.placement to Learner, or leave it out"
)
NEEDS_SEEDED_EPISODES = (
    "reproducible needs environments whose episodes can be seeded and played again: leave environment.onError at Fail, "
    "and reproducible out for games of the Arcade Learning Environment"
)
NEEDS_STOP_AT_UPDATES = (
    "reproducible needs stop rules that are met at the same update in each run: use stop.environmentSteps, meanReturn or "
    "smoothedReturn instead of seconds, evaluation and noImprovement"
)


class Reproducible(ApiModel):
    """Makes the parameters after each update the same, bit for bit, in every run of the job: with
    any number of samplers, while that number changes, and after failures of samplers and of the
    learner. All machines need the same image and the same kind of CPU, and the environment must be
    a function of its seed and its actions, which each sampler checks. An update has no deadline: a
    sampler that waits takes over blocks that are overdue.

    IMPALA uses one unroll of every block for an update, and ignores batchUnrolls and queueCapacity. With a replay
    the learner keeps all transitions, also in its checkpoints."""

    blocks: Annotated[int, Field(ge=1, le=1024)] = 8
    """Blocks of `environment.numEnvs` environments each. Each update uses one rollout of every
    block. Samplers only host blocks, so more samplers than blocks have no work."""
    take_over_seconds: Positive = 2.0
    """A sampler that waits takes over a block of another sampler if its rollout takes this much longer than twice the time of
    the quickest sampler."""
    hash_every: Count = 10
    """Updates between two lines of the file `hashes.jsonl`, which prove that two runs are equal. Here an
    update is everything that is learned from one rollout of each block."""

    def problem(self, spec: JobSpec) -> str | None:
        """Returns why a job with this spec cannot be reproduced, or None."""
        algorithm, stop = spec.algorithm, spec.stop
        if algorithm.name not in REPRODUCIBLE:
            return f"{NEEDS_ALGORITHM}, got {algorithm.name}"
        if spec.learner.replicas > 1:
            return NEEDS_ONE_LEARNER
        if (settings := algorithm.a2c or algorithm.ppo) is not None:
            together = settings.aggregate.mode == "Sync" and settings.aggregate.count is None
            if spec.gradients_at != "Learner" or not together:
                return NEEDS_GRADIENTS_AT_LEARNER
        if (replay := algorithm.replay) is not None and replay.placement == "Dedicated":
            return NEEDS_REPLAY_AT_LEARNER
        if spec.environment.on_error != "Fail" or spec.environment.preprocessing is not None:
            return NEEDS_SEEDED_EPISODES
        if (stop.seconds, stop.evaluation, stop.no_improvement) != (None, None, None):
            return NEEDS_STOP_AT_UPDATES
        return None


def reproducible_rules() -> Iterator[Rule]:
    """Yields the rules of `Reproducible.problem`, for an API server."""
    unset = "!has(self.reproducible)"
    named = " || ".join(f"has(self.algorithm.{name})" for name in REPRODUCIBLE)
    yield Rule(f"{unset} || {named}", NEEDS_ALGORITHM)
    yield Rule(f"{unset} || ({ONE_LEARNER})", NEEDS_ONE_LEARNER)
    for name in GRADIENTS:
        path = f"self.algorithm.{name}"
        at_learner = f"!has({path}.gradients) || {path}.gradients == 'Learner'"
        mode = f"!has({path}.aggregate.mode) || {path}.aggregate.mode == 'Sync'"
        together = f"!has({path}.aggregate) || (({mode}) && !has({path}.aggregate.count))"
        rule = f"{unset} || !has({path}) || (({at_learner}) && ({together}))"
        yield Rule(rule, NEEDS_GRADIENTS_AT_LEARNER)
    for name in REPLAYS:
        path = f"self.algorithm.{name}"
        placement = f"{path}.replay.placement"
        rule = f"{unset} || !has({path}) || !has({path}.replay) || !has({placement}) || {placement} != 'Dedicated'"
        yield Rule(rule, NEEDS_REPLAY_AT_LEARNER)
    fails = "!has(self.environment.onError) || self.environment.onError == 'Fail'"
    game = f"self.environment.id.matches('{patterns.ATARI_ID}')"
    yield Rule(f"{unset} || (({fails}) && !{game})", NEEDS_SEEDED_EPISODES)
    timed = " || ".join(f"has(self.stop.{rule})" for rule in ("seconds", "evaluation", "noImprovement"))
    yield Rule(f"{unset} || !({timed})", NEEDS_STOP_AT_UPDATES)
