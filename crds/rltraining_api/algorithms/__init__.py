"""`spec.algorithm`: exactly one algorithm, its hyperparameters typed and defaulted to published values, or a user's own."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from rltraining_api.algorithms.apex import DdpgApex, DqnApex
from rltraining_api.algorithms.entry_point import UserAlgorithm
from rltraining_api.algorithms.gradients import A2c, A3c, Aggregate, GradientsAt, Ppo, sequences_of
from rltraining_api.algorithms.impala import Impala
from rltraining_api.algorithms.optimizer import Adam, Optimizer, RmsProp, Sgd
from rltraining_api.algorithms.r2d2 import R2d2
from rltraining_api.algorithms.replay import Replay
from rltraining_api.algorithms.sac import Sac
from rltraining_api.algorithms.td3 import Td3
from rltraining_api.base import OneOf
from rltraining_api.introspect import child_model, fields_by_key

__all__ = [
    "ALGORITHMS",
    "A2c",
    "A3c",
    "Adam",
    "Aggregate",
    "Algorithm",
    "AlgorithmName",
    "DdpgApex",
    "DqnApex",
    "GradientsAt",
    "Impala",
    "Optimizer",
    "Parameters",
    "Ppo",
    "R2d2",
    "RmsProp",
    "Sac",
    "Sgd",
    "Td3",
    "UserAlgorithm",
    "sequences_of",
]

AlgorithmName = Literal[
    "a3c", "a2c", "ppo", "dqnApex", "ddpgApex", "r2d2", "sac", "td3", "impala", "entryPoint"
]
Parameters = A3c | A2c | Ppo | DqnApex | DdpgApex | R2d2 | Sac | Td3 | Impala | UserAlgorithm


class Algorithm(OneOf):
    """Exactly one algorithm with its hyperparameters; `{}` takes the published ones. An
    `entryPoint` defines its own."""

    choices: ClassVar[tuple[str, ...]] = (
        "a3c",
        "a2c",
        "ppo",
        "dqn_apex",
        "ddpg_apex",
        "r2d2",
        "sac",
        "td3",
        "impala",
        "entry_point",
    )
    noun: ClassVar[str] = "algorithm"

    a3c: A3c | None = Field(default=None, alias="a3c")
    """A3C: each sampler's gradient is applied on arrival."""
    a2c: A2c | None = Field(default=None, alias="a2c")
    """A2C: one gradient of the rollouts of all samplers."""
    ppo: Ppo | None = None
    """PPO: clipped policy steps on the rollouts of all samplers."""
    dqn_apex: DqnApex | None = None
    """Ape-X DQN: Q-learning from distributed prioritized replay; discrete actions."""
    ddpg_apex: DdpgApex | None = None
    """Ape-X DPG: deterministic policy gradient from distributed prioritized replay; continuous actions."""
    r2d2: R2d2 | None = Field(default=None, alias="r2d2")
    """R2D2: recurrent Q-learning from sequences in distributed prioritized replay; discrete actions."""
    sac: Sac | None = None
    """SAC: maximum entropy with twin critics from distributed replay; continuous actions."""
    td3: Td3 | None = None
    """TD3: a deterministic policy with twin critics from distributed replay; continuous actions."""
    impala: Impala | None = None
    """IMPALA: samplers send unrolls, the learner corrects with v-trace."""
    entry_point: UserAlgorithm | None = None
    """An algorithm of your own: a module that defines `learner(world)` and `sampler(world)`."""

    @property
    def parameters(self) -> Parameters:
        """The hyperparameters of the algorithm that is set."""
        chosen: Parameters = self.chosen
        return chosen

    @property
    def replay(self) -> Replay | None:
        """The settings of the replay memory, of an algorithm that learns from one."""
        replay: Replay | None = getattr(self.parameters, "replay", None)
        return replay

    @property
    def title(self) -> str:
        """Name for people: `impala`, or the module of a custom algorithm."""
        return self.entry_point.module if self.entry_point else self.name


ALGORITHMS = {
    key: model
    for key, field in fields_by_key(Algorithm).items()
    if (model := child_model(field.annotation)) is not None
}
"""The model of each algorithm's hyperparameters, by its key in a manifest."""
