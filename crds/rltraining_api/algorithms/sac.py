"""SAC (Haarnoja et al. 2018, arXiv 1812.05905)."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from rltraining_api.algorithms.apex import Apex
from rltraining_api.algorithms.optimizer import Adam, Optimizer
from rltraining_api.algorithms.replay import UniformReplay
from rltraining_api.base import ByTask
from rltraining_api.fields import Count, Fraction, LearningRate, Positive, Return
from rltraining_api.preset_types import Presets, values_of

_LEARNING = {
    **values_of(
        "SAC paper, table 1",
        nStep=1,
        batchSize=256,
        learningRate=3e-4,
        optimizer={"adam": {}},
        targetUpdatePeriod=1,
        targetUpdateRate=0.005,
        replay__capacity=1_000_000,
    ),
    **values_of("SAC paper, table 1: an update each step", replay__samplesPerInsert=256.0),
    **values_of("SAC paper", gradientClip=None, rewardClip=None, environment__normalize=None),
    **values_of("Spinning Up sac.py: start_steps", replay__minimum=10_000),
    **values_of("measured", parameterRefreshSteps=4, environment__numEnvs=4),
}
_VECTORS = {
    **_LEARNING,
    **values_of("SAC paper, table 1", network={"mlp": {"hiddenSizes": [256, 256], "activation": "Relu"}}),
}


class Sac(Apex):
    """SAC: a stochastic policy of maximum entropy, with twin critics and an automatic temperature,
    from distributed replay (arXiv 1812.05905)."""

    n_step: ByTask[Count] = 1
    """Steps of reward before the bootstrap (paper: 1)."""
    batch_size: ByTask[Count] = 256
    """Transitions in one update, of all learners together (paper: 256)."""
    replay: UniformReplay = Field(default_factory=UniformReplay)
    """The replay memory: where it is stored, how large it is, and how it is sampled."""
    learning_rate: ByTask[LearningRate] = 3e-4
    """Step size of the optimizers of the actor, the critics and the temperature (paper: 3e-4)."""
    optimizer: ByTask[Optimizer] = Field(default_factory=lambda: Optimizer(adam=Adam()))
    """The optimizer of all three (paper: adam)."""
    gradient_clip: ByTask[Positive | None] = None
    """Largest norm of each of the three gradients. Default: not clipped (paper: not clipped)."""
    target_update_period: ByTask[Count] = 1
    """Updates between updates of the target critics (paper: 1)."""
    target_update_rate: ByTask[Fraction] = 0.005
    """How far the target critics then move towards the critics (paper: .005)."""
    parameter_refresh_steps: ByTask[Count] = 4
    """Steps of each environment between a sampler's requests for newer parameters (the paper has 1)."""
    initial_temperature: Positive = 1.0
    """α of the first update, the weight of the entropy (the authors' softlearning: 1)."""
    target_entropy: Return | None = None
    """Entropy of the policy that the temperature is adjusted to, of actions in [-1, 1]. Default:
    minus the number of the action's dimensions (paper: the same)."""

    presets: ClassVar[Presets] = {
        "Atari": {**_LEARNING, **values_of("Mnih et al. 2015", network={"natureCnn": {}})},
        "MuJoCo": _VECTORS,
        "Classic": _VECTORS,
    }
