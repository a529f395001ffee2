"""What any network offers to those who act with it."""

from __future__ import annotations

from torch import Tensor, nn

from rltraining_trainer.networks.normalizer import Normalizer

State = tuple[Tensor, ...]
"""Recurrent state: ``()`` without an LSTM, ``(h, c)`` of ``[B, H]`` each with one."""


class PolicyNetwork(nn.Module):
    """A network that acts: its output becomes actions by the ``Actions`` that belong to it.

    Args:
        normalizer: running statistics that the network holds; they come first in its flat parameter vector.
    """

    def __init__(self, normalizer: Normalizer | None = None) -> None:
        super().__init__()
        self.normalizer = normalizer

    def initial_state(self, batch: int) -> State:
        """The state at the beginning of an episode, for ``batch`` environments."""
        return ()

    def policy(self, observation: Tensor, state: State, first: Tensor | None = None) -> tuple[Tensor, State]:
        """One step of acting: (output ``[B, P]``, next state).

        ``first`` ``[B]`` bool: where an episode begins, the state is forgotten before it is used.
        """
        raise NotImplementedError
