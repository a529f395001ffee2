"""IMPALA (Espeholt et al. 2018, arXiv 1802.01561)."""

from __future__ import annotations

from typing import ClassVar, Self

from pydantic import Field, model_validator

from rltraining_api.algorithms.optimizer import Optimizer, RmsProp
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


class Impala(ApiModel):
    """Samplers send unrolls, the learner corrects for their older policy with v-trace (arXiv 1802.01561)."""

    discount: ByTask[Fraction] = 0.99
    """γ (paper: .99)."""
    unroll_length: ByTask[Count] = 20
    """T: steps of each environment in one unroll (paper: 20 for Atari, 100 for DMLab)."""
    batch_unrolls: Count = 1
    """Unrolls that one update uses. One unroll contains `environment.numEnvs` sequences, so the
    batch is numEnvs x batchUnrolls sequences of unrollLength steps (the paper has 32 sequences)."""
    queue_capacity: ByTask[CountOrZero] = 1
    """Unrolls that are queued for the learner before samplers have to wait. With 0 a sampler waits
    until its unroll was used, and receives the resulting parameters. A longer queue keeps the
    learner busier, with older data (not in the paper)."""
    max_policy_lag: Count | None = 32
    """Largest age in parameter versions of the policy that collected an unroll, when the learner uses
    it. Older unrolls are dropped and counted. The learner lets samplers collect as many unrolls at a
    time as keep it busy, and at most batchUnrolls x maxPolicyLag / 2. Other samplers wait, and then
    receive the newest parameters. null: no limit (not in the paper)."""
    updates_per_batch: ByTask[Count] = 1
    """Optimizer steps on each batch (paper: 1)."""
    learning_rate: ByTask[LearningRate] = 6e-4
    """Step size of the optimizer (paper: .0006 for Atari)."""
    learning_rate_schedule: ByTask[Schedule] = "Constant"
    """Constant, or Linear: decreases to 0 over stop.environmentSteps, which is then required
    (paper: Linear for Atari)."""
    optimizer: ByTask[Optimizer] = Field(default_factory=lambda: Optimizer(rmsprop=RmsProp()))
    """The optimizer (paper: rmsprop with alpha .99, epsilon .01, momentum 0)."""
    gradient_clip: ByTask[Positive | None] = 40.0
    """Largest global norm of the gradient; null turns clipping off (paper: 40)."""
    entropy_cost: ByTask[NotNegative] = 0.01
    """Weight of the entropy bonus (paper: .01 for Atari)."""
    baseline_cost: ByTask[NotNegative] = 0.25
    """Weight of the value loss (v − V)², a squared error without a factor of ½ (paper: .5 of ½(v − V)²)."""
    clip_range: ByTask[Positive | None] = None
    """ε of PPO's clipped objective, which then replaces the policy gradient, with the policy that acted as the old one;
    pgRhoClip has no effect. null: the policy gradient. Makes many updates of a batch safer (paper: no)."""
    rho_clip: Positive = 1.0
    """Clip of the importance weights ρ in the value target; must be at least cClip (paper: 1, section 5.2)."""
    c_clip: Positive = 1.0
    """Clip of the trace weights c (paper: 1)."""
    pg_rho_clip: Positive = 1.0
    """Clip of the importance weights in the policy gradient (1 as in deepmind/scalable_agent)."""
    lambda_: ByTask[Fraction] = Field(default=1.0, alias="lambda")
    """λ, the decay of traces (paper: 1, remark 2)."""
    loss_reduction: ByTask[LossReduction] = "Sum"
    """How the losses of a batch's steps are combined: Sum or Mean. Mean divides the gradient by the
    number of steps in the batch (paper: Sum)."""
    advantage_normalization: ByTask[bool] = False
    """Normalise the policy gradient's advantages to mean 0 and variance 1 within the batch (paper:
    no)."""
    reward_scale: Positive = 1.0
    """Rewards are multiplied by this factor for learning, after clipping, so that values fit the
    range of the network; returns are reported unscaled (not in the paper)."""
    reward_clip: ByTask[Positive | None] = None
    """Clip rewards to [-rewardClip, rewardClip] for learning; returns are reported unclipped. Off by default
    (paper: 1 for Atari)."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule("self.rhoClip >= self.cClip", "rhoClip must be at least cClip"),
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.rho_clip < self.c_clip:
            raise refusal(f"rhoClip must be at least cClip ({self.c_clip:g}), got {self.rho_clip:g}")
        return self
