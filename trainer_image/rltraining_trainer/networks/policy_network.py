"""The base class of networks that act."""

from __future__ import annotations

from torch import Tensor, nn

from rltraining_trainer.networks.normalizer import Normalizer

State = tuple[Tensor, ...]
"""Recurrent state: ``()`` without an LSTM, ``(h, c)`` of ``[B, H]`` each with one."""


class PolicyNetwork(nn.Module):
    """A network that acts. The corresponding ``Actions`` convert its output to actions.

    Args:
        normalizer: Running statistics, the first values of the flat parameter vector.
    """

    def __init__(self, normalizer: Normalizer | None = None) -> None:
        super().__init__()
        self.normalizer = normalizer

    def initial_state(self, batch: int) -> State:
        """Returns the recurrent state of ``batch`` environments at the beginning of an episode."""
        return ()

    def policy(self, observation: Tensor, state: State, first: Tensor | None = None) -> tuple[Tensor, State]:
        """Returns output ``[B, P]`` and the next recurrent state.

        Args:
            observation: ``[B, ...]``.
            state: Recurrent state before the observation.
            first: ``[B]`` bool, the observation begins an episode, so the state is reset first.
        """
        raise NotImplementedError


def forget(state: State, first: Tensor) -> State:
    """Resets a recurrent state where an episode begins: ``first`` ``[B]`` bool."""
    keep = (~first).unsqueeze(-1)
    return tuple(part * keep for part in state)


def parameter_count(module: nn.Module) -> int:
    """Returns the number of parameters of a module, the frozen ones included."""
    return sum(parameter.numel() for parameter in module.parameters())


def actor_parameter_count(network: PolicyNetwork, actor: nn.Module) -> int:
    """Returns the number of parameters of ``actor``, the first module of a network, and of the statistics before them.

    The actor may not use the statistics: images are not normalised.
    """
    parts = nn.ModuleList([actor] if network.normalizer is None else [network.normalizer, actor])
    return parameter_count(parts)
