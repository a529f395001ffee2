"""A deterministic policy for continuous actions, and the critic that it learns from."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rltraining_trainer.networks.normalizer import Normalizer
from rltraining_trainer.networks.policy_network import PolicyNetwork, State
from rltraining_trainer.networks.torsos import orthogonal


class DeterministicActorCritic(PolicyNetwork):
    """Computes π(s) ``[N, d]`` in [-1, 1] and Q(s, a) ``[N]`` (Lillicrap et al. 2016, arXiv 1509.02971).

    The actor and the critic share no parameters.

    Args:
        actor_torso: Maps observations ``[N, ...]`` to features ``[N, actor_features]``.
        actor_features: Number of the actor's features.
        dimensions: d, the size of an action.
        critic_torso: Maps observations ``[N, ...]`` to features ``[N, F]``.
        critic_body: Maps these features and the action ``[N, F + d]`` to ``[N, critic_features]``.
        critic_features: Number of the critic's last features.
        normalizer: Running statistics used in both torsos.
    """

    def __init__(
        self,
        actor_torso: nn.Module,
        actor_features: int,
        dimensions: int,
        critic_torso: nn.Module,
        critic_body: nn.Module,
        critic_features: int,
        normalizer: Normalizer | None = None,
    ) -> None:
        super().__init__(normalizer)
        # The flat vector contains the actor's parameters before those of the critic.
        actor_head = orthogonal(nn.Linear(actor_features, dimensions), 0.01)
        self.actor = nn.Sequential(actor_torso, actor_head, nn.Tanh())
        self.critic_torso = critic_torso
        self.critic = nn.Sequential(critic_body, orthogonal(nn.Linear(critic_features, 1), 0.01))

    def policy(self, observation: Tensor, state: State, first: Tensor | None = None) -> tuple[Tensor, State]:
        return self.actor(observation), state

    def value(self, observation_features: Tensor, action: Tensor) -> Tensor:
        """Returns Q(s, a) ``[N]`` from ``critic_torso``'s features of s and actions ``[N, d]``."""
        return self.critic(torch.cat((observation_features, action), -1)).squeeze(-1)
