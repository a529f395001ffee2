"""`spec.algorithm`: exactly one algorithm, its hyperparameters typed and defaulted to published values."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from rltraining_api.algorithms.apex import DdpgApex, DqnApex
from rltraining_api.algorithms.gradients import A2c, A3c, Ppo
from rltraining_api.algorithms.impala import Impala
from rltraining_api.algorithms.optimizer import Adam, Optimizer, RmsProp
from rltraining_api.base import OneOf, Rule, any_of, refusal

__all__ = [
    "AVAILABLE_ALGORITHMS",
    "A2c",
    "A3c",
    "Adam",
    "Algorithm",
    "AlgorithmName",
    "DdpgApex",
    "DqnApex",
    "Impala",
    "Optimizer",
    "Parameters",
    "Ppo",
    "RmsProp",
]

AVAILABLE_ALGORITHMS = ("impala", "dqnApex", "ddpgApex")
"""The algorithms that the trainer has; the others are refused by validation."""

AlgorithmName = Literal["a3c", "a2c", "ppo", "dqnApex", "ddpgApex", "impala"]
Parameters = A3c | A2c | Ppo | DqnApex | DdpgApex | Impala


class Algorithm(OneOf):
    """Exactly one algorithm with its hyperparameters; `{}` takes the published ones."""

    choices: ClassVar[tuple[str, ...]] = ("a3c", "a2c", "ppo", "dqn_apex", "ddpg_apex", "impala")
    noun: ClassVar[str] = "algorithm"

    a3c: A3c | None = Field(default=None, alias="a3c")
    """A3C: samplers send gradients, each applied as it comes."""
    a2c: A2c | None = Field(default=None, alias="a2c")
    """A2C: samplers send gradients, applied together."""
    ppo: Ppo | None = None
    """PPO: clipped policy steps, gradients applied together (DPPO)."""
    dqn_apex: DqnApex | None = None
    """Ape-X DQN: Q-learning from distributed prioritized replay; discrete actions."""
    ddpg_apex: DdpgApex | None = None
    """Ape-X DPG: deterministic policy gradient from distributed prioritized replay; continuous actions."""
    impala: Impala | None = None
    """IMPALA: samplers send unrolls, the learner corrects with v-trace."""

    @classmethod
    def all_rules(cls) -> tuple[Rule, ...]:
        """Exactly one algorithm, and only one that is built."""
        missing = [key for key in cls.choice_keys() if key not in AVAILABLE_ALGORITHMS]
        return (*super().all_rules(), *(Rule(f"!has(self.{key})", _not_built(key)) for key in missing))

    @property
    def parameters(self) -> Parameters:
        """The hyperparameters of the algorithm that is set."""
        chosen: Parameters = self.chosen
        return chosen

    @model_validator(mode="after")
    def _available(self) -> Self:
        if self.name not in AVAILABLE_ALGORITHMS:
            raise refusal(_not_built(self.name))
        return self


def _not_built(name: str) -> str:
    return f"{name} is not built yet: use {any_of(AVAILABLE_ALGORITHMS)}"
