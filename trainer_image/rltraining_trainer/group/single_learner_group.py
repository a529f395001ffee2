"""The group of a job with one learner."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from torch import Tensor

from rltraining_trainer.transport import Handler


class GroupDecision(NamedTuple):
    """What all learners do in one iteration of their loops."""

    done: bool
    """Whether this is the last iteration."""
    update: bool = True
    """Whether to update: at least one learner has data, and none holds the update back."""
    checkpoint: bool = False
    """Whether to write a checkpoint: a learner requests one."""
    total_steps: int | None = None
    """Environment steps at which schedules end, sent by learner 0."""
    largest: Sequence[float] = ()
    """The largest of each further value of the learners."""


class SingleLearnerGroup:
    """The group of a job with one learner, where every operation is the identity."""

    rank = 0
    size = 1
    generation = 1
    warning = ""
    services: Mapping[str, Handler] = {}

    def form(self, stopping: threading.Event) -> None:
        """Does nothing."""

    def begin(
        self,
        done: bool,
        *,
        update: bool = True,
        hold: bool = False,
        checkpoint: bool = False,
        total_steps: int | None = None,
        values: Sequence[float] = (),
    ) -> GroupDecision:
        return GroupDecision(done, update and not hold, checkpoint, total_steps, values)

    def sum(self, gradient: Tensor, count: float) -> float:
        return count

    def maximum(self, values: Sequence[float]) -> list[float]:
        return [float(value) for value in values]

    def broadcast(self, values: Tensor, source: int) -> None:
        """Does nothing."""

    def barrier(self) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""
