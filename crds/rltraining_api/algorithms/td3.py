"""TD3 (Fujimoto et al. 2018, arXiv 1802.09477)."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from rltraining_api.algorithms.apex import Apex
from rltraining_api.algorithms.optimizer import Adam, Optimizer
from rltraining_api.algorithms.replay import UniformReplay
from rltraining_api.base import ByTask
from rltraining_api.fields import Count, Fraction, LearningRate, NotNegative, Positive
from rltraining_api.preset_types import Presets, values_of

_LEARNING = {
    **values_of(
        "the authors' TD3.py", batchSize=256, learningRate=3e-4, targetUpdatePeriod=2, targetUpdateRate=0.005
    ),
    **values_of("TD3 paper", nStep=1, optimizer={"adam": {}}, gradientClip=None, rewardClip=None),
    **values_of("TD3 paper", replay__capacity=1_000_000, environment__normalize=None),
    **values_of("TD3 paper: an update each step", replay__samplesPerInsert=256.0),
    **values_of("Spinning Up td3.py: start_steps", replay__minimum=10_000),
    **values_of("as SAC's", parameterRefreshSteps=4, environment__numEnvs=4),
}
_VECTORS = {
    **_LEARNING,
    **values_of("the authors' TD3.py", network={"mlp": {"hiddenSizes": [256, 256], "activation": "Relu"}}),
}


class Td3(Apex):
    """TD3: a deterministic policy with twin critics, delayed policy updates and smoothed targets,
    from distributed replay (arXiv 1802.09477)."""

    n_step: ByTask[Count] = 1
    """Steps of reward before the bootstrap (paper: 1)."""
    batch_size: ByTask[Count] = 256
    """Transitions in one update, of all learners together (the authors' code: 256; paper: 100)."""
    replay: UniformReplay = Field(default_factory=UniformReplay)
    """The replay memory: where it is stored, how large it is, and how it is sampled."""
    learning_rate: ByTask[LearningRate] = 3e-4
    """Step size of the optimizers of the actor and of the critics (the authors' code: 3e-4; paper:
    1e-3)."""
    optimizer: ByTask[Optimizer] = Field(default_factory=lambda: Optimizer(adam=Adam()))
    """The optimizer of both (paper: adam)."""
    gradient_clip: ByTask[Positive | None] = None
    """Largest norm of each of the two gradients. Default: not clipped (paper: not clipped)."""
    policy_delay: Count = 2
    """Updates of the critics for each update of the actor (paper: 2)."""
    target_update_period: ByTask[Count] = 2
    """Updates of the critics between updates of the target networks (paper: 2)."""
    target_update_rate: ByTask[Fraction] = 0.005
    """How far the target networks then move towards the networks (paper: .005)."""
    parameter_refresh_steps: ByTask[Count] = 4
    """Steps of each environment between a sampler's requests for newer parameters (the paper has 1)."""
    exploration_noise: NotNegative = 0.1
    """Standard deviation of the noise on actions, in units of half the action's range (paper:
    .1)."""
    target_noise: NotNegative = 0.2
    """Standard deviation of the noise on the actions that the critics learn from, in the same units
    (paper: .2)."""
    target_noise_clip: Positive = 0.5
    """Largest value of that noise (paper: .5)."""

    presets: ClassVar[Presets] = {
        "Atari": {**_LEARNING, **values_of("Mnih et al. 2015", network={"natureCnn": {}})},
        "MuJoCo": _VECTORS,
        "Classic": _VECTORS,
    }
