"""A3C, A2C and PPO: gradients are computed by the samplers or by the learner."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from rltraining_api.algorithms.optimizer import Adam, Optimizer, RmsProp
from rltraining_api.base import ApiModel, ByTask, Rule, refusal
from rltraining_api.fields import (
    Count,
    CountOrZero,
    Fraction,
    LearningRate,
    LossReduction,
    NotNegative,
    Positive,
    Schedule,
)

SYNC_HAS_NO_QUEUE = (
    "queueCapacity must be 0 in mode Sync: each sampler waits for the update that its gradient is part of"
)
SYNC_TAKES_SEVERAL = "count must be null or at least 2 in mode Sync: null takes one gradient of each sampler"
N_STEP_IS_LAMBDA_1 = (
    "gaeLambda must be 1 with nStep: n-step returns and gaeLambda both set the advantages, use only one"
)
ONE_WAY_TO_MINIBATCHES = "minibatchSize and minibatches both set how rollouts are split: set only one"
MINIBATCHES_HOLD_STEPS = (
    "ppo.minibatches must be at most rolloutLength x environment.numEnvs, the steps of a rollout"
)
MINIBATCHES_HOLD_SEQUENCES = (
    "with network.lstm, ppo.minibatches must be at most environment.numEnvs x rolloutLength / sequenceLength"
)
PPO_IS_SYNC = (
    "ppo needs aggregate.mode Sync: its samplers go through the minibatches of their rollouts together"
)


GradientsAt = Literal["Samplers", "Learner"]


class Aggregate(ApiModel):
    """How gradients of samplers are combined into updates."""

    mode: Literal["Async", "Sync"] = "Sync"
    """Async: gradients are applied on arrival, whatever the version of their parameters. Sync: all
    samplers compute gradients with the same parameters, and wait for the update (A2C, DPPO:
    Sync)."""
    count: Count | None = None
    """Gradients per update. Default: one of each sampler (A2C, DPPO: of each)."""
    reduction: Literal["Mean", "Sum"] = "Mean"
    """How the gradients of an update are combined: Mean, weighted by the number of steps of each
    gradient, or Sum (A2C, DPPO: Mean)."""
    max_policy_lag: CountOrZero | None = 16
    """Mode Async: the largest age of a gradient's parameters, in versions. Older gradients are
    rejected and counted. Also limits how many samplers compute gradients at a time. null: no limit.
    In mode Sync no gradient is older (not published)."""
    queue_capacity: CountOrZero = 0
    """Mode Async: gradients that are queued for the learner before samplers have to wait. With 0 a
    sampler waits until its gradient was applied, and receives the resulting parameters (A3C: 0)."""
    deadline_seconds: Positive = 2.0
    """Seconds that an update waits for other gradients after the first. The update then uses fewer
    gradients (not published)."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        # An API server tries rules on the default `{}` before it fills in that object's own defaults.
        Rule("!has(self.mode) || self.mode == 'Async' || self.queueCapacity == 0", SYNC_HAS_NO_QUEUE),
    )

    @model_validator(mode="after")
    def _what_is_for_async_only(self) -> Self:
        if self.mode == "Sync" and self.queue_capacity != 0:
            raise refusal(f"{SYNC_HAS_NO_QUEUE}, got {self.queue_capacity}")
        return self


class A3cAggregate(Aggregate):
    """How gradients of samplers are combined into updates: by default each is applied on
    arrival."""

    mode: Literal["Async", "Sync"] = "Async"
    """Async: gradients are applied on arrival, whatever the version of their parameters. Sync: all
    samplers compute gradients with the same parameters, and wait for the update (A3C: Async)."""
    count: Count | None = 1
    """Gradients per update; null: one of each sampler (A3C: 1)."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        *Aggregate.cel_rules,
        # Of what is null CEL says that it is not there.
        Rule(
            "!has(self.mode) || self.mode == 'Async' || !has(self.count) || self.count != 1",
            SYNC_TAKES_SEVERAL,
        ),
    )

    @model_validator(mode="after")
    def _count_goes_with_mode(self) -> Self:
        if self.mode == "Sync" and self.count == 1:
            raise refusal(SYNC_TAKES_SEVERAL)
        return self


class ActorCritic(ApiModel):
    """What A3C, A2C and PPO share."""

    aggregate: Aggregate = Field(default_factory=Aggregate)
    """How gradients of samplers are combined into updates (A2C, DPPO: the mean of one of each
    sampler)."""
    gradients: GradientsAt | None = None
    """Where gradients are computed. Samplers: each sampler sends one for each minibatch of its
    rollout.
    Learner: samplers send rollouts, and the learner makes all updates from them, on its GPU if it
    has one. Several learners average their gradients, but in mode Async they need Samplers, and
    each holds a slice of the parameters. Default: Learner, except in mode Async with several
    learners (A2C and PPO in openai/baselines: Learner; DPPO: Samplers)."""
    discount: ByTask[Fraction] = 0.99
    """γ (.99 in all three)."""
    learning_rate_schedule: ByTask[Schedule] = "Constant"
    """Constant, or Linear: decreases to 0 over stop.environmentSteps, which is then required
    (published: Linear for Atari in all three)."""
    entropy_cost: ByTask[NotNegative] = 0.01
    """Weight of the entropy bonus (.01 for Atari in all three)."""
    reward_clip: ByTask[Positive | None] = None
    """Clip rewards to [-rewardClip, rewardClip] for learning; returns are reported unclipped. Off by default
    (published: 1 for Atari)."""
    reward_scale: Positive = 1.0
    """Rewards are multiplied by this factor for learning, after clipping, so that values fit the
    range of the network; returns are reported unscaled (not published)."""


class NStepActorCritic(ActorCritic):
    """What A3C and A2C share."""

    n_step: Count | None = None
    """Steps of reward before the bootstrap, or fewer at the end of the rollout. Default: to the end
    of the rollout, and gaeLambda applies (A3C, A2C: to the end)."""
    gae_lambda: ByTask[Fraction] = 1.0
    """λ of generalised advantage estimation; must be 1 with nStep (A3C, A2C: 1, which is the return to the end of the
    rollout)."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule("!has(self.nStep) || !has(self.gaeLambda) || self.gaeLambda == 1.0", N_STEP_IS_LAMBDA_1),
    )

    @model_validator(mode="after")
    def _one_way_to_advantages(self) -> Self:
        if self.n_step is not None and self.gae_lambda != 1:
            raise refusal(f"{N_STEP_IS_LAMBDA_1}, got {self.gae_lambda:g}")
        return self


class A3c(NStepActorCritic):
    """Samplers send gradients, each applied on arrival (Mnih et al. 2016, arXiv 1602.01783)."""

    aggregate: A3cAggregate = Field(default_factory=A3cAggregate)
    """How gradients of samplers are combined into updates (paper: each on arrival)."""
    gradients: GradientsAt = "Samplers"
    """Where gradients are computed. Samplers: each sampler sends one for each rollout. Learner:
    samplers send rollouts, and the learner computes the gradients, on its GPU if it has one (A3C:
    Samplers)."""
    rollout_length: ByTask[Count] = 5
    """t_max: steps of each environment per gradient (paper: 5)."""
    learning_rate: ByTask[LearningRate] = 7e-4
    """Step size of the shared optimizer (paper: drawn log-uniformly from [1e-4, 1e-2]; about 7e-4 was best)."""
    optimizer: ByTask[Optimizer] = Field(default_factory=lambda: Optimizer(rmsprop=RmsProp(epsilon=0.1)))
    """The shared optimizer (paper: rmsprop with shared statistics, alpha .99; its author: epsilon .1)."""
    gradient_clip: ByTask[Positive | None] = 40.0
    """Largest global norm of the gradient; null turns clipping off (40 is usual, the paper is silent)."""
    baseline_cost: ByTask[NotNegative] = 0.25
    """Weight of the value loss (R − V)², a squared error without a factor of ½ (its author: .5 of ½(R − V)²)."""
    loss_reduction: ByTask[LossReduction] = "Sum"
    """How the losses of a rollout's steps are combined: Sum or Mean. Mean divides the gradient by
    the number of steps. Sum covers the steps of all `environment.numEnvs`: with more than one,
    lower the learning rate or use Mean (paper: Sum over the 5 steps of one environment)."""
    advantage_normalization: ByTask[bool] = False
    """Normalise advantages to mean 0 and variance 1: in mode Async within the rollout, in mode Sync
    over the rollouts of all samplers (paper: no)."""


class A2c(NStepActorCritic):
    """Synchronous A3C: one update with the mean of all samplers' gradients (defaults:
    openai/baselines a2c)."""

    rollout_length: ByTask[Count] = 5
    """Steps of each environment per gradient (baselines: 5)."""
    learning_rate: ByTask[LearningRate] = 7e-4
    """Step size of the optimizer (baselines: 7e-4)."""
    optimizer: ByTask[Optimizer] = Field(default_factory=lambda: Optimizer(rmsprop=RmsProp(epsilon=1e-5)))
    """The optimizer (baselines: rmsprop with alpha .99, epsilon 1e-5)."""
    gradient_clip: ByTask[Positive | None] = 0.5
    """Largest global norm of the gradient; null turns clipping off (baselines: .5)."""
    baseline_cost: ByTask[NotNegative] = 0.5
    """Weight of the value loss (R − V)², a squared error without a factor of ½ (baselines: .5)."""
    loss_reduction: ByTask[LossReduction] = "Mean"
    """How the losses of a rollout's steps are combined: Sum or Mean. Mean divides the gradient by
    the number of steps in the rollout (baselines: Mean)."""
    advantage_normalization: ByTask[bool] = False
    """Normalise advantages to mean 0 and variance 1: in mode Sync over the rollouts of all
    samplers, in mode Async within the rollout (baselines: no)."""


class Ppo(ActorCritic):
    """Clipped policy steps on shared rollouts, gradients averaged over samplers (Schulman et al. 2017, arXiv
    1707.06347; the defaults are its Atari table)."""

    rollout_length: ByTask[Count] = 128
    """Horizon T: steps of each environment per rollout (paper, table 5: 128)."""
    epochs: ByTask[Count] = 3
    """Passes over each rollout (paper, table 5: 3)."""
    minibatch_size: ByTask[Count] = 256
    """Number of steps in a minibatch, over all samplers. It is rounded so that all minibatches have
    the same size, and limited to the rollouts of all samplers (paper, table 5: 256)."""
    minibatches: Count | None = None
    """Alternative to minibatchSize: the number of minibatches per epoch. Their size then grows with
    the number of samplers."""
    sequence_length: Count = 16
    """With network.lstm, each environment's rollout is cut into sequences of this number of steps, and a minibatch
    consists of whole sequences. A gradient goes back to the first step of its sequence (Sample Factory: 32,
    RLlib: 20, CleanRL: the whole rollout)."""
    learning_rate: ByTask[LearningRate] = 2.5e-4
    """Step size of the optimizer (paper, table 5: 2.5e-4)."""
    optimizer: ByTask[Optimizer] = Field(default_factory=lambda: Optimizer(adam=Adam(epsilon=1e-5)))
    """The optimizer (paper: adam; openai/baselines ppo2: with epsilon 1e-5)."""
    gradient_clip: Positive | None = 0.5
    """Largest global norm of the gradient; null turns clipping off (openai/baselines ppo2: .5, the paper is
    silent)."""
    baseline_cost: ByTask[NotNegative] = 1.0
    """Weight of the value loss (R − V)², a squared error without a factor of ½ (paper, equation 9 and table 5: 1)."""
    gae_lambda: ByTask[Fraction] = 0.95
    """λ of generalised advantage estimation (paper: .95)."""
    clip_range: ByTask[Positive] = 0.1
    """ε: how far the probability ratio may move from 1 before its gradient is clipped (paper, table
    5: .1)."""
    clip_range_schedule: ByTask[Schedule] = "Constant"
    """Constant, or Linear: ε decreases to 0 over stop.environmentSteps, which is then required
    (paper: Linear for Atari)."""
    value_clip: Positive | None = None
    """How far a value may move from its estimate at the start of the update before its gradient is
    clipped. null: no limit (openai/baselines ppo2: the clip range; Stable-Baselines3: null)."""
    entropy_schedule: Schedule = "Constant"
    """Constant, or Linear: entropyCost decreases to 0 over stop.environmentSteps, which is then
    required (paper: Constant)."""
    target_kl: Positive | None = None
    """The epochs of a rollout end with the first update whose mean approximate KL divergence
    exceeds 1.5 targetKl (OpenAI Spinning Up, Stable-Baselines3: just before it). Default: all
    epochs run (paper: all)."""
    advantage_normalization: bool = True
    """Normalise advantages to mean 0 and variance 1 (openai/baselines ppo2: yes)."""
    advantage_normalization_per: Literal["Rollout", "Minibatch"] = "Rollout"
    """Whether advantages are normalised over the rollouts of all samplers or over each minibatch.
    Where samplers compute gradients, each normalises its part of a minibatch (baselines,
    Stable-Baselines3 and CleanRL have Minibatch)."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule("self.aggregate.mode == 'Sync'", PPO_IS_SYNC),
        Rule("!has(self.minibatches) || !has(self.minibatchSize)", ONE_WAY_TO_MINIBATCHES),
    )

    @model_validator(mode="after")
    def _sync(self) -> Self:
        if self.aggregate.mode != "Sync":
            raise refusal(f"{PPO_IS_SYNC}, got {self.aggregate.mode}")
        return self

    @model_validator(mode="after")
    def _one_way_to_minibatches(self) -> Self:
        if self.minibatches is not None and self.has_set("minibatch_size"):
            raise refusal(
                f"{ONE_WAY_TO_MINIBATCHES}, got minibatchSize {self.minibatch_size} and minibatches {self.minibatches}"
            )
        return self

    def minibatches_of(self, steps: int) -> int:
        """Returns the number of minibatches in each pass over `steps` steps, the rollouts of all samplers together."""
        if self.minibatches is not None:
            return self.minibatches
        return max(1, round(steps / self.minibatch_size))


def sequences_of(steps: int, environments: int, length: int) -> int:
    """Returns the number of sequences of at most `length` steps in the rollouts of some environments."""
    return -(-steps // length) * environments
