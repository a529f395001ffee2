"""The algorithms that learn from a distributed prioritized replay: Ape-X (Horgan et al. 2018, arXiv
1803.00933)."""

from __future__ import annotations

from typing import ClassVar, Self

from pydantic import Field, model_validator

from rltraining_api.algorithms.optimizer import Adam, Optimizer, RmsProp
from rltraining_api.base import ApiModel, Rule, refusal
from rltraining_api.fields import Count, Fraction, LearningRate, Positive


class Apex(ApiModel):
    """What both Ape-X algorithms share."""

    discount: Fraction = 0.99
    """γ (paper: .99)."""
    priority_exponent: Fraction = 0.6
    """α: how strongly priorities shape the draw; 0 draws uniformly (paper: .6)."""
    importance_exponent: Fraction = 0.4
    """β: how far importance weights undo the draw's bias; 1 does wholly (paper: .4)."""
    samples_per_insert: Positive | None = None
    """How often each transition is drawn on average: learner and samplers wait for each other to keep to it.
    Without, neither waits (the paper's run came to about .8)."""
    parameter_refresh_steps: Count = 400
    """Steps of a sampler between looks for newer parameters (paper: 400 frames)."""
    reward_clip: Positive | None = None
    """Clip rewards to [-rewardClip, rewardClip] for learning; returns are reported unclipped. Off by default
    (paper: 1 for Atari)."""
    batch_size: Count = 512
    """Transitions in one update (paper: 512)."""
    replay_capacity: Count = 2_000_000
    """Transitions kept in all shards together; the oldest go first (paper: 2,000,000)."""
    replay_minimum: Count = 50_000
    """Transitions in all shards together before learning starts (paper: 50,000)."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule("self.replayCapacity >= self.replayMinimum", "replayCapacity must be at least replayMinimum"),
        Rule("self.replayMinimum >= self.batchSize", "replayMinimum must be at least batchSize"),
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.replay_minimum > self.replay_capacity:
            raise refusal(
                f"replayCapacity must be at least replayMinimum ({self.replay_minimum}), "
                f"got {self.replay_capacity}"
            )
        if self.batch_size > self.replay_minimum:
            raise refusal(
                f"replayMinimum must be at least batchSize ({self.batch_size}), got {self.replay_minimum}"
            )
        return self


class DqnApex(Apex):
    """Ape-X DQN: double, dueling, n-step Q-learning from prioritized replay shards (arXiv 1803.00933)."""

    n_step: Count = 3
    """Steps of reward before the bootstrap (paper: 3)."""
    learning_rate: LearningRate = 6.25e-5
    """Step size of the optimizer (paper: .00025 / 4)."""
    optimizer: Optimizer = Field(
        default_factory=lambda: Optimizer(rmsprop=RmsProp(alpha=0.95, epsilon=1.5e-7, centered=True))
    )
    """The optimizer (paper: centred rmsprop with alpha .95, epsilon 1.5e-7)."""
    gradient_clip: Positive | None = 40.0
    """Largest global norm of the gradient; null turns clipping off (paper: 40)."""
    target_update_period: Count = 2500
    """Updates between copies of the network into the target network (paper: 2500)."""
    double_q: bool = True
    """Choose the next action with the online network, value it with the target network (paper: yes)."""
    dueling: bool = True
    """Split the Q-value into state value and advantages (paper: yes)."""
    exploration_epsilon: Fraction = 0.4
    """ε of the first of N samplers; sampler i explores with ε^(1 + explorationAlpha i/(N-1)) (paper: .4)."""
    exploration_alpha: Positive = 7.0
    """How much faster ε falls from sampler to sampler; see explorationEpsilon (paper: 7)."""


class DdpgApex(Apex):
    """Ape-X DPG: deterministic policy gradient from prioritized replay shards (arXiv 1803.00933, appendix;
    what it leaves open is as in D4PG, arXiv 1804.08617)."""

    n_step: Count = 5
    """Steps of reward before the bootstrap (D4PG: 5)."""
    batch_size: Count = 256
    """Transitions in one update (D4PG: 256)."""
    actor_learning_rate: LearningRate = 1e-4
    """Step size of the actor's optimizer (D4PG: 1e-4)."""
    critic_learning_rate: LearningRate = 1e-4
    """Step size of the critic's optimizer (D4PG: 1e-4)."""
    optimizer: Optimizer = Field(default_factory=lambda: Optimizer(adam=Adam()))
    """The optimizer of both (D4PG: adam)."""
    gradient_clip: Positive | None = 40.0
    """Largest global norm of the gradient; null turns clipping off (as in Ape-X DQN)."""
    action_gradient_clip: Positive | None = 1.0
    """Clip of each element of the critic's gradient with respect to the action; null turns it off (paper: 1)."""
    target_update_period: Count = 100
    """Updates between copies of the networks into the target networks (paper: 100)."""
    replay_capacity: Count = 1_000_000
    """Transitions kept in all shards together; the oldest go first (paper: 1,000,000)."""
    replay_minimum: Count = 10_000
    """Transitions in all shards together before learning starts (not published)."""
    exploration_noise: Positive = 0.3
    """Standard deviation of the Gaussian noise on actions, in units of half the action's range (paper: .3)."""
