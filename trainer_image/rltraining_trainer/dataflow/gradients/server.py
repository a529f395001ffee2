"""Gradients or unrolls come in, parameters go out: the learner's side of the gradient dataflow, as RPC services.

A sampler pushes what it made of a rollout with the version of the parameters that it had; the answer is parked
until the update has been made, and then brings newer parameters: one round trip a rollout, or a minibatch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic

import torch

from rltraining_trainer.dataflow.fields import field
from rltraining_trainer.dataflow.gradients.accounts import GradientSource, P, Push
from rltraining_trainer.dataflow.gradients.in_step import GradientsInStep
from rltraining_trainer.dataflow.gradients.messages import Reader, place, vector
from rltraining_trainer.dataflow.model_server import ModelServer
from rltraining_trainer.dataflow.trajectory_queue import Source
from rltraining_trainer.transport import Handler, Parked, Payload

_STATISTICS = 3
"""Numbers that samplers add up: count, sum and sum of squares of their advantages."""


class GradientServer(Generic[P]):
    """Answers the services "push", "pull" and, for samplers that learn in step, "sum".

    push: ``{"incarnation": str, "sequence": int, "version": int, "place": (epoch, iteration, position)}``, and a gradient or
        an unroll: see ``messages``; pull: ``{"version": int}``, and the "place" of the rollout that is to go on, if there is
        one. Both are answered with ``{"version": int, "parameters": Tensor [n] | None, "done": bool, "place": (...),
        "used": bool, "exchanges": int, "remaining": float}``: parameters only when the sampler's version is not the current
        one; used: what was pushed was; exchanges: pushes of the present rollout; remaining: of the run, from 1 down to 0.
    sum: ``{"place": (...), "part": Tensor float64 [3]}``, answered with the sum over all samplers of this iteration, or None.
    """

    def __init__(self, gradients: GradientSource[P], models: ModelServer, read: Reader[P]) -> None:
        """``read``: makes a push of its payload."""
        self._gradients, self._models, self._read = gradients, models, read
        self._done = False

    @property
    def services(self) -> Mapping[str, Handler]:
        in_step = {"sum": self.sum} if isinstance(self._gradients, GradientsInStep) else {}
        return {"push": self.push, "pull": self.pull, **in_step}

    def push(self, sender: str, payload: Payload) -> Parked:
        """Raises TypeError or ValueError, naming the field, if ``payload`` is not a push."""
        version = field(payload, "version", int)
        source = Source(sender, field(payload, "incarnation", str), field(payload, "sequence", int))
        push = self._read(Push(source, place(payload), version), payload)
        parked = Parked()
        self._gradients.push(push, lambda used: parked.resolve(self._answer(version, used)))
        return parked

    def pull(self, sender: str, payload: Payload) -> Parked:
        """Raises TypeError, naming the field, if ``payload`` is not a pull."""
        version = field(payload, "version", int)
        rollout = place(payload) if isinstance(payload, dict) and "place" in payload else None
        parked = Parked()
        self._gradients.join(sender, lambda: parked.resolve(self._answer(version, False)), rollout)
        return parked

    def sum(self, sender: str, payload: Payload) -> Parked:
        """Raises TypeError or ValueError, naming the field, if ``payload`` is not a part of a sum."""
        assert isinstance(self._gradients, GradientsInStep)
        parked = Parked()
        part = vector(payload, "part", torch.float64, _STATISTICS)
        self._gradients.add(sender, place(payload), part, parked.resolve)
        return parked

    def finish(self) -> None:
        """The run is over: every answer says so from now on, and the parked ones are given at once."""
        self._done = True
        self._gradients.close()

    def _answer(self, version: int, used: bool) -> Payload:
        current = self._gradients.place  # first: it never is one of newer parameters
        newest, parameters = self._models.newer_than(version)
        return {
            "version": newest,
            "parameters": parameters,
            "done": self._done,
            "place": tuple(current),
            "used": used,
            "exchanges": self._gradients.exchanges,
            "remaining": self._gradients.remaining,
        }
