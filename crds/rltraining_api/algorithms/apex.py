"""The algorithms that learn from a distributed replay: Ape-X (Horgan et al. 2018, arXiv 1803.00933)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from rltraining_api.algorithms.optimizer import Adam, Optimizer, RmsProp
from rltraining_api.algorithms.replay import DdpgReplay, Replay
from rltraining_api.base import ApiModel, ByTask, Rule, refusal
from rltraining_api.fields import Count, Fraction, LearningRate, NotNegative, Positive

QUANTILES_NEED_HUBER = "quantiles need loss Huber: their loss is the quantile Huber loss"


class Apex(ApiModel):
    """What both Ape-X algorithms share."""

    recurrent: ClassVar[bool] = False
    """Whether the network has an LSTM, or must not have one."""

    discount: Fraction = 0.99
    """γ (paper: .99)."""
    n_step: ByTask[Count] = 3
    """Steps of reward before the bootstrap (paper: 3)."""
    batch_size: ByTask[Count] = 512
    """Transitions in one update, of all learners together (paper: 512)."""
    replay: Replay = Field(default_factory=Replay)
    """The replay memory: where it is stored, how large it is, and how it is sampled (paper: section
    3)."""
    gradient_clip: ByTask[Positive | None] = 40.0
    """Largest global norm of the gradient; null turns clipping off (paper: 40)."""
    target_update_period: ByTask[Count] = 2500
    """Updates between updates of the target network (paper: 2500)."""
    target_update_rate: ByTask[Fraction] = 1.0
    """How far the target network then moves towards the network: 1 copies the network, and a small
    rate with a period of 1 is Polyak averaging (paper: copies)."""
    parameter_refresh_steps: ByTask[Count] = 100
    """Steps of each environment between a sampler's requests for newer parameters (paper: 400
    frames, which are 100 steps)."""
    reward_clip: ByTask[Positive | None] = None
    """Clip rewards to [-rewardClip, rewardClip] for learning; returns are reported unclipped. Off by default
    (paper: 1 for Atari)."""
    reward_scale: Positive = 1.0
    """Multiply rewards by this for learning (paper: 1)."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.batchSize) || !has(self.replay) || !has(self.replay.minimum) || self.replay.minimum >= self.batchSize",
            "replay.minimum must be at least batchSize",
        ),
    )

    @model_validator(mode="after")
    def _batch_fits(self) -> Self:
        both = self.has_set("batch_size") and self.replay.has_set("minimum")
        if both and self.batch_size > self.replay.minimum:
            raise refusal(
                f"replay.minimum must be at least batchSize ({self.batch_size}), got {self.replay.minimum}"
            )
        return self


class DqnApex(Apex):
    """Ape-X DQN: double, dueling, n-step Q-learning from prioritized replay shards (arXiv 1803.00933)."""

    learning_rate: ByTask[LearningRate] = 6.25e-5
    """Step size of the optimizer (paper: .00025 / 4)."""
    optimizer: ByTask[Optimizer] = Field(
        default_factory=lambda: Optimizer(rmsprop=RmsProp(alpha=0.95, epsilon=1.5e-7, centered=True))
    )
    """The optimizer (paper: centred rmsprop with alpha .95, epsilon 1.5e-7)."""
    loss: Literal["Huber", "SquaredError"] = "Huber"
    """Loss of the TD error δ. Huber: quadratic up to 1 and linear beyond. SquaredError: ½δ² (Huber
    as in Mnih et al. 2015; the paper has ½δ²)."""
    quantiles: Annotated[int, Field(ge=1, le=1000)] = 1
    """Quantiles of the return that the network estimates for each action. More than one, such as 50, learn the
    distribution of returns as QR-DQN does, which has 200 (Dabney et al. 2018, arXiv 1710.10044). 1 is the mean alone
    (paper: the mean)."""
    double_q: bool = True
    """Choose the next action with the online network, and evaluate it with the target network
    (paper: yes)."""
    dueling: bool = True
    """Replace the last hidden layer by two of the same size, one for the state value and one for
    the advantages (paper: yes)."""
    exploration_epsilon: Fraction = 0.4
    """ε of the first of N environments, which are numbered over all samplers; environment i
    explores with ε^(1 + explorationAlpha i/(N-1)) (paper: .4, one environment a sampler)."""
    exploration_alpha: Positive = 7.0
    """How much faster ε falls from environment to environment; see explorationEpsilon (paper: 7)."""
    noisy_layers: bool = False
    """Explore by noise on the weights of the layers that follow the torso, with learned standard deviations, instead of
    random actions: explorationEpsilon has no effect (NoisyNet: Fortunato et al. 2018, arXiv 1706.10295, factorised noise;
    paper: no)."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        *Apex.cel_rules,
        Rule(
            "!has(self.quantiles) || self.quantiles == 1 || !has(self.loss) || self.loss == 'Huber'",
            QUANTILES_NEED_HUBER,
        ),
    )

    @model_validator(mode="after")
    def _quantiles_fit(self) -> Self:
        if self.quantiles > 1 and self.loss != "Huber":
            raise refusal(f"{QUANTILES_NEED_HUBER}, got {self.loss}")
        return self


class DdpgApex(Apex):
    """Ape-X DPG: deterministic policy gradient from prioritized replay shards (arXiv 1803.00933,
    appendix; unpublished details as in D4PG, arXiv 1804.08617)."""

    n_step: ByTask[Count] = 5
    """Steps of reward before the bootstrap (D4PG: 5)."""
    batch_size: ByTask[Count] = 256
    """Transitions in one update, of all learners together (D4PG: 256)."""
    parameter_refresh_steps: ByTask[Count] = 400
    """Steps of each environment between a sampler's requests for newer parameters (paper: 400
    frames, here each a step)."""
    replay: DdpgReplay = Field(default_factory=DdpgReplay)
    """The replay memory: where it is stored, how large it is, and how it is sampled (paper:
    appendix)."""
    actor_learning_rate: ByTask[LearningRate] = 1e-4
    """Step size of the actor's optimizer (D4PG: 1e-4)."""
    critic_learning_rate: ByTask[LearningRate] = 1e-4
    """Step size of the critic's optimizer (D4PG: 1e-4)."""
    optimizer: ByTask[Optimizer] = Field(default_factory=lambda: Optimizer(adam=Adam()))
    """The optimizer of both (D4PG: adam)."""
    action_gradient_clip: Positive | None = 1.0
    """Clip of each element of the critic's gradient with respect to the action; null turns it off (paper: 1)."""
    target_update_period: ByTask[Count] = 100
    """Updates between updates of the target networks (paper: 100)."""
    exploration_noise: ByTask[Positive] = 0.3
    """Largest standard deviation of the noise on actions, in units of half the action's range (paper: .3)."""
    exploration_spread: ByTask[NotNegative] = 0.0
    """How much the noise decreases over N environments, which are numbered over all samplers:
    environment i has explorationNoise x 10^(-explorationSpread i/(N-1)). With 0 all have the same
    noise (paper: the same)."""
    warmup: ByTask[Literal["Policy", "Random"]] = "Policy"
    """How samplers act before learning begins at replay.minimum transitions. Policy: as the policy
    with noise. Random: uniformly over the action space (paper: Policy; TD3 and Spinning Up's DDPG:
    Random)."""
    noise: ByTask[Literal["Gaussian", "OrnsteinUhlenbeck"]] = "Gaussian"
    """Kind of noise on actions. Gaussian: independent in each step. OrnsteinUhlenbeck: correlated
    over about 7 steps (paper: Gaussian; Lillicrap et al. 2016: Ornstein-Uhlenbeck with θ .15)."""
