"""`spec.reproducible`: runs with parameters that depend on the manifest and the seed alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from rltraining_api import patterns
from rltraining_api.base import ApiModel, Rule, any_of
from rltraining_api.fields import Count

if TYPE_CHECKING:
    from rltraining_api.job import JobSpec

REPRODUCIBLE = ("a2c", "ppo")
"""The algorithms with a reproducible mode."""

NEEDS_ALGORITHM = f"reproducible is for {any_of(REPRODUCIBLE)}: use one of them, or leave reproducible out"
NEEDS_ONE_LEARNER = (
    "reproducible needs one learner that computes the gradients of all rollouts: set learner.replicas to 1, and leave "
    "gradients, aggregate.mode and aggregate.count at their defaults"
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
    sampler that waits takes blocks over that are overdue by `aggregate.deadlineSeconds`."""

    blocks: Annotated[int, Field(ge=1, le=1024)] = 8
    """Blocks of `environment.numEnvs` environments each. Each update uses one rollout of every
    block. Samplers only host blocks, so more samplers than blocks have no work."""
    hash_every: Count = 10
    """Updates between two lines of the file `hashes.jsonl`, which prove that two runs are equal. Here an
    update is everything that is learned from one rollout of each block."""

    def problem(self, spec: JobSpec) -> str | None:
        """Returns why a job with this spec cannot be reproduced, or None."""
        settings, stop = spec.algorithm.a2c or spec.algorithm.ppo, spec.stop
        if settings is None:
            return f"{NEEDS_ALGORITHM}, got {spec.algorithm.name}"
        together = settings.aggregate.mode == "Sync" and settings.aggregate.count is None
        if spec.learner.replicas > 1 or spec.gradients_at != "Learner" or not together:
            return NEEDS_ONE_LEARNER
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
    for name in REPRODUCIBLE:
        path = f"self.algorithm.{name}"
        one = "!has(self.learner) || !has(self.learner.replicas) || self.learner.replicas == 1"
        at_learner = f"!has({path}.gradients) || {path}.gradients == 'Learner'"
        mode = f"!has({path}.aggregate.mode) || {path}.aggregate.mode == 'Sync'"
        together = f"!has({path}.aggregate) || (({mode}) && !has({path}.aggregate.count))"
        rule = f"{unset} || !has({path}) || (({one}) && ({at_learner}) && ({together}))"
        yield Rule(rule, NEEDS_ONE_LEARNER)
    fails = "!has(self.environment.onError) || self.environment.onError == 'Fail'"
    game = f"self.environment.id.matches('{patterns.ATARI_ID}')"
    yield Rule(f"{unset} || (({fails}) && !{game})", NEEDS_SEEDED_EPISODES)
    timed = " || ".join(f"has(self.stop.{rule})" for rule in ("seconds", "evaluation", "noImprovement"))
    yield Rule(f"{unset} || !({timed})", NEEDS_STOP_AT_UPDATES)
