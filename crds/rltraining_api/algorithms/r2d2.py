"""R2D2 (Kapturowski et al. 2019, "Recurrent experience replay in distributed reinforcement learning")."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from rltraining_api.algorithms.apex import Apex
from rltraining_api.algorithms.optimizer import Adam, Optimizer
from rltraining_api.algorithms.replay import Replay
from rltraining_api.base import ByTask
from rltraining_api.fields import Count, Fraction, LearningRate, Positive
from rltraining_api.preset_types import Presets, values_of

_PUBLISHED = values_of(
    "R2D2 paper, table 2",
    nStep=5,
    batchSize=64,
    learningRate=1e-4,
    optimizer={"adam": {"epsilon": 1e-3}},
    targetUpdatePeriod=2500,
    targetUpdateRate=1.0,
    gradientClip=40.0,
    rewardClip=None,
    parameterRefreshSteps=100,
    sequenceLength=80,
    burnIn=40,
    discount=0.997,
    replay__capacity=100_000,
    replay__minimum=1_250,
)
_CLASSIC = {
    **_PUBLISHED,
    **values_of(
        "measured",
        learningRate=1e-3,
        sequenceLength=32,
        burnIn=16,
        targetUpdatePeriod=200,
        discount=0.99,
        parameterRefreshSteps=16,
        environment__numEnvs=16,
        environment__normalize=None,
        replay__capacity=20_000,
        replay__minimum=500,
        replay__samplesPerInsert=32.0,
        network={"mlp": {"hiddenSizes": [64], "activation": "Relu"}, "lstm": {"hiddenSize": 64}},
    ),
}


class R2d2Replay(Replay):
    """A memory of sequences, in shards that are sampled as if they were one."""

    capacity: ByTask[Count] = 100_000
    """Maximum number of sequences in all shards together. The oldest of a shard are evicted (paper:
    4,000,000 steps, which are 100,000 sequences that overlap by half)."""
    minimum: ByTask[Count] = 1_250
    """Sequences in all shards together before learning starts (not published; here 50,000 steps)."""
    priority_exponent: Fraction = 0.9
    """α: how strongly priorities determine the samples (paper: .9)."""
    importance_exponent: Fraction = 0.6
    """β: how far importance weights correct the bias of the samples (paper: .6)."""
    frame_stack: Annotated[int, Field(ge=1, le=1)] = 1
    """Sequences keep observations as they are."""


class R2d2(Apex):
    """R2D2: recurrent Q-learning from sequences with stored states in distributed prioritized
    replay (Kapturowski et al. 2019)."""

    recurrent: ClassVar[bool] = True

    discount: ByTask[Fraction] = 0.997
    """γ (paper: .997)."""
    n_step: ByTask[Count] = 5
    """Steps of reward before the bootstrap (paper: 5)."""
    sequence_length: ByTask[Annotated[int, Field(ge=2, le=1_000, multiple_of=2)]] = 80
    """Steps of a sequence that are learnt from. Sequences overlap by half of it (paper: 80 and
    40)."""
    burn_in: ByTask[Annotated[int, Field(ge=0, le=1_000)]] = 40
    """Steps before those of sequenceLength that only update the recurrent state, rounded up to a
    multiple of half of sequenceLength (paper: 40)."""
    batch_size: ByTask[Count] = 64
    """Sequences in one update, of all learners together (paper: 64)."""
    replay: R2d2Replay = Field(default_factory=R2d2Replay)
    """The replay memory: where it is stored, how large it is, and how it is sampled."""
    learning_rate: ByTask[LearningRate] = 1e-4
    """Step size of the optimizer (paper: 1e-4)."""
    optimizer: ByTask[Optimizer] = Field(default_factory=lambda: Optimizer(adam=Adam(epsilon=1e-3)))
    """The optimizer (paper: adam with epsilon 1e-3)."""
    priority_mix: Fraction = 0.9
    """η: a sequence has the priority η max |δ| + (1 - η) mean |δ| of its steps (paper: .9)."""
    value_rescaling: Annotated[float, Field(gt=0, le=1)] | None = 1e-3
    """ε of h(x) = sign(x) (√(|x| + 1) - 1) + ε x, which compresses the targets; null: not
    compressed (paper: 1e-3)."""
    exploration_epsilon: Fraction = 0.4
    """ε of the first of N environments, which are numbered over all samplers; environment i
    explores with ε^(1 + explorationAlpha i/(N-1)) (paper: .4)."""
    exploration_alpha: Positive = 7.0
    """How much faster ε falls from environment to environment; see explorationEpsilon (paper: 7)."""

    @property
    def burn_in_steps(self) -> int:
        """Number of burn-in steps of a sequence."""
        half = self.sequence_length // 2
        return half * -(-self.burn_in // half)

    presets: ClassVar[Presets] = {
        "Atari": {
            **_PUBLISHED,
            **values_of("Mnih et al. 2015", network={"natureCnn": {}, "lstm": {"hiddenSize": 512}}),
            **values_of("R2D2 paper: each step is replayed .8 times", replay__samplesPerInsert=0.8),
            **values_of("measured", environment__normalize=None, environment__numEnvs=16),
        },
        "MuJoCo": _CLASSIC,
        "Classic": _CLASSIC,
    }
