"""The data path in which samplers send rollouts and the learner computes all gradients.

PPO, A2C and A3C use it with ``gradients: Learner``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gymnasium import spaces

from rltraining_trainer.algorithms.holder import ParameterHolder
from rltraining_trainer.algorithms.reduce import Reduce
from rltraining_trainer.algorithms.rollout_learner import RolloutLearner
from rltraining_trainer.dataflow.gradients import Reader, UnrollPush, UnrollReader
from rltraining_trainer.networks import ActorCritic, Distribution
from rltraining_trainer.roles.gradient_flow import GradientFlow
from rltraining_trainer.roles.link import is_large
from rltraining_trainer.roles.progress import Experience


class RolloutFlow(GradientFlow):
    """The learner's side: a ``Flow`` for a single learner.

    Rollouts are exchanged by the rules for gradients, with one exchange per rollout as in A2C and
    A3C.
    """

    algorithm: RolloutLearner

    @property
    def sends_large(self) -> bool:
        return self._large or super().sends_large

    def metrics(self) -> dict[str, float | None]:
        counts = self._gradients.counts()
        return {
            "unrolls/pushed": counts.pushed,
            "unrolls/used": counts.applied,
            "unrolls/dropped": counts.dropped,
            "unrolls/queued": counts.queued,
            "unrolls/stale": counts.stale,
        }

    def _make_algorithm(
        self, network: ActorCritic, distribution: Distribution, total_steps: int | None
    ) -> ParameterHolder:
        return RolloutLearner(network, distribution, self._settings, total_steps, self._device)

    def _make_reader(self, observation: spaces.Space) -> Reader[Any]:
        self._large = is_large(observation)
        normalizer = self.algorithm.network.normalizer
        return UnrollReader(
            length=self._settings.rollout_length,
            observation_shape=observation.shape or (),
            action_shape=self.algorithm.distribution.action_shape,
            state_sizes=[part.shape[1] for part in self.algorithm.network.initial_state(1)],
            moments_size=0 if normalizer is None else 1 + 2 * normalizer.mean.numel(),
        )

    @property
    def _exchanges(self) -> int:
        return 1

    def _apply(self, pushes: Sequence[UnrollPush], reduce: Reduce) -> Mapping[str, float]:
        """Makes all updates from these rollouts. Returns the means of their loss terms."""
        if not pushes:
            return {}
        version = self._models.version
        unrolls: list[Any] = [push.unroll for push in pushes]
        terms = self.algorithm.step(unrolls, leaving=self._stopping.is_set)
        self._experiences += [
            Experience(
                int(unroll["valid"].sum()),
                unroll["episode_return"],
                int(unroll["episodes"].sum()),
                version - push.version,
            )
            for push, unroll in zip(pushes, unrolls, strict=True)
        ]
        return terms
