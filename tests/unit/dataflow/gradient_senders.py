"""Simulated samplers that send gradients."""

from __future__ import annotations

import torch
from manual_clock import Clock
from rltraining_trainer.dataflow import Source
from rltraining_trainer.dataflow.gradients import (
    GradientPush,
    GradientQueue,
    GradientSource,
    StragglerPolicy,
    SynchronousGradients,
)
from rltraining_trainer.dataflow.gradients.accounts import Place

NOW = 0.0
"""A timeout of 0 seconds: tests do not wait."""
DEADLINE = 2.0
"""Seconds for which an update waits for others."""


class Sender:
    """One incarnation of a sampler, and the answers that it received."""

    def __init__(self, gradients: GradientSource, name: str, incarnation: str = "a") -> None:
        self.gradients, self.name, self.incarnation = gradients, name, incarnation
        self.answers: list[bool] = []
        """For each answered push, whether its gradient was used."""
        self.joined = 0
        """Number of answered joins."""
        self.credits: list[bool] = []
        """For each answer, whether there was a credit."""
        self.sums: list[list[float] | None] = []
        self.last: GradientPush | None = None
        self._sequence = 0

    def push(self, place: Place | None = None, *, version: int = 0, value: float = 0.0) -> list[bool]:
        """Pushes a gradient of `place`, by default the current one. Returns all answers so far."""
        self._sequence += 1
        self.last = GradientPush(
            source=Source(self.name, self.incarnation, self._sequence),
            place=place or self.gradients.place,
            version=version,
            gradient=torch.tensor([value]),
            weight=1.0,
            steps=1,
            episodes=0,
            returns=torch.zeros(0),
            terms={},
        )
        return self.repeat()

    def repeat(self) -> list[bool]:
        """Repeats the last push, because its answer was lost."""
        assert self.last is not None
        self.gradients.push(self.last, self._answered)
        return self.answers

    def join(self, rollout: Place | None = None) -> int:
        self.gradients.join(self.name, self._admitted, rollout)
        return self.joined

    def request(self) -> None:
        """Requests a credit from a queue."""
        assert isinstance(self.gradients, GradientQueue)
        self.gradients.request(self.name, self.credits.append)

    def _answered(self, used: bool, has_credit: bool) -> None:
        self.answers.append(used)
        self.credits.append(has_credit)

    def _admitted(self, has_credit: bool) -> None:
        self.joined += 1
        self.credits.append(has_credit)


def names(pushes: list[GradientPush]) -> list[str]:
    """Returns the names of the gradients' senders."""
    return [push.source.sender for push in pushes]


class InStep:
    """A parameter server, a clock, and the expected samplers: a, b and so on."""

    def __init__(self, samplers: str = "abc", exchanges: int = 1, count: int | None = None) -> None:
        self.clock, self.expected = Clock(), set(samplers)
        patience = StragglerPolicy(lambda: self.expected)
        self.gradients = SynchronousGradients(exchanges, patience, DEADLINE, count=count, clock=self.clock)
        self.gradients.restart("x")
        self.gradients.release()
        self.senders = {name: self.start(name) for name in samplers}
        for sender in self.senders.values():
            sender.join()

    def start(self, name: str, incarnation: str = "a") -> Sender:
        return Sender(self.gradients, name, incarnation)

    def push(self, samplers: str) -> None:
        """Pushes a gradient of the current place from each sampler."""
        for name in samplers:
            self.senders[name].push()

    @property
    def ready(self) -> bool:
        return self.gradients.is_ready(NOW)

    def update(self) -> list[str]:
        """Returns the senders of the applied gradients."""
        taken = names(self.gradients.take())
        self.gradients.release()
        self.gradients.check_valid()
        return taken

    def iterate(self, samplers: str) -> float:
        """Runs one iteration of one exchange with these samplers. Returns the seconds that it waited."""
        self.push(samplers)
        if self.ready:
            self.update()
            return 0.0
        self.clock.now += DEADLINE
        assert self.ready, "the update does not wait longer than the deadline"
        self.update()
        return DEADLINE

    def answers(self, name: str) -> list[bool]:
        return self.senders[name].answers
