"""The algorithms whose samplers send gradients: A3C, A2C, PPO."""

from __future__ import annotations

from pydantic import Field

from rltraining_api.algorithms.optimizer import Adam, Optimizer, RmsProp
from rltraining_api.base import ApiModel
from rltraining_api.fields import Count, Fraction, LearningRate, LearningRateSchedule, NotNegative, Positive


class ActorCritic(ApiModel):
    """What A3C, A2C and PPO share."""

    discount: Fraction = 0.99
    """γ (.99 in all three)."""
    learning_rate_schedule: LearningRateSchedule = "Constant"
    """Constant, or Linear: down to 0 over stop.environmentSteps, which must then be set (published: Linear
    for Atari in all three)."""
    entropy_cost: NotNegative = 0.01
    """Weight of the entropy bonus (.01 for Atari in all three)."""
    reward_clip: Positive | None = None
    """Clip rewards to [-rewardClip, rewardClip] for learning; returns are reported unclipped. Off by default
    (published: 1 for Atari)."""


class A3c(ActorCritic):
    """Samplers send gradients, each applied as it comes (Mnih et al. 2016, arXiv 1602.01783)."""

    rollout_length: Count = 5
    """t_max: steps of each environment per gradient (paper: 5)."""
    learning_rate: LearningRate = 7e-4
    """Step size of the shared optimizer (paper: drawn log-uniformly from [1e-4, 1e-2]; about 7e-4 was best)."""
    optimizer: Optimizer = Field(default_factory=lambda: Optimizer(rmsprop=RmsProp(epsilon=0.1)))
    """The shared optimizer (paper: rmsprop with shared statistics, alpha .99; its author: epsilon .1)."""
    gradient_clip: Positive | None = 40.0
    """Largest global norm of the gradient; null turns clipping off (40 is usual, the paper is silent)."""
    baseline_cost: NotNegative = 0.5
    """Weight of the value loss (its author: .5)."""
    gae_lambda: Fraction = 1.0
    """λ of generalised advantage estimation (paper: n-step returns, which is 1)."""
    advantage_normalization: bool = False
    """Bring advantages to mean 0 and variance 1 within the rollout (paper: no)."""


class A2c(ActorCritic):
    """A3C in step: one update with the mean of all samplers' gradients (defaults: openai/baselines a2c)."""

    rollout_length: Count = 5
    """Steps of each environment per gradient (baselines: 5)."""
    learning_rate: LearningRate = 7e-4
    """Step size of the optimizer (baselines: 7e-4)."""
    optimizer: Optimizer = Field(default_factory=lambda: Optimizer(rmsprop=RmsProp(epsilon=1e-5)))
    """The optimizer (baselines: rmsprop with alpha .99, epsilon 1e-5)."""
    gradient_clip: Positive | None = 0.5
    """Largest global norm of the gradient; null turns clipping off (baselines: .5)."""
    baseline_cost: NotNegative = 0.5
    """Weight of the value loss (baselines: .5)."""
    gae_lambda: Fraction = 1.0
    """λ of generalised advantage estimation (baselines: n-step returns, which is 1)."""
    advantage_normalization: bool = False
    """Bring advantages to mean 0 and variance 1 within the rollout (baselines: no)."""


class Ppo(ActorCritic):
    """Clipped policy steps on shared rollouts, gradients averaged over samplers (Schulman et al. 2017, arXiv
    1707.06347; the defaults are its Atari table)."""

    rollout_length: Count = 128
    """Horizon T: steps of each environment per rollout (paper, table 5: 128)."""
    epochs: Count = 3
    """Passes over each rollout (paper, table 5: 3)."""
    minibatches: Count = 4
    """Parts into which a rollout is split in each pass (paper, table 5: 8 actors x 128 steps in minibatches
    of 256, which makes 4)."""
    learning_rate: LearningRate = 2.5e-4
    """Step size of the optimizer (paper, table 5: 2.5e-4)."""
    optimizer: Optimizer = Field(default_factory=lambda: Optimizer(adam=Adam()))
    """The optimizer (paper: adam)."""
    gradient_clip: Positive | None = 0.5
    """Largest global norm of the gradient; null turns clipping off (openai/baselines ppo2: .5, the paper is
    silent)."""
    baseline_cost: NotNegative = 1.0
    """Weight of the value loss (paper, table 5: 1)."""
    gae_lambda: Fraction = 0.95
    """λ of generalised advantage estimation (paper: .95)."""
    clip_range: Positive = 0.1
    """ε: how far the probability ratio may go before its gradient stops (paper, table 5: .1)."""
    advantage_normalization: bool = True
    """Bring advantages to mean 0 and variance 1 within the minibatch (openai/baselines ppo2: yes)."""
