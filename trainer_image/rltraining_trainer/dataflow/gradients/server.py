"""RPC services of the learner that receive gradients or unrolls and return parameters.

A sampler pushes a gradient or an unroll with the version of its parameters. The reply is deferred
until the update is complete and contains the new parameters, so that each rollout or minibatch
takes one round trip.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Generic

import torch

from rltraining_trainer.dataflow.fields import field
from rltraining_trainer.dataflow.gradients.accounts import GradientSource, P, Push
from rltraining_trainer.dataflow.gradients.messages import Reader, place, vector
from rltraining_trainer.dataflow.gradients.queue import GradientQueue
from rltraining_trainer.dataflow.gradients.synchronous import SynchronousGradients
from rltraining_trainer.dataflow.model_server import ModelServer
from rltraining_trainer.dataflow.trajectory_queue import Source
from rltraining_trainer.transport import DeferredReply, Handler, Payload

_STATISTICS = 3
"""Numbers that samplers add up: count, sum and sum of squares of their advantages."""


class GradientServer(Generic[P]):
    """Answers the services "push", "pull", in mode Async "credit", and for samplers that learn in step "sum".

    push: ``{"incarnation": str, "sequence": int, "version": int, "place": (epoch, iteration,
        position)}`` and a gradient or an unroll (see ``messages``).
    pull: ``{"version": int}``, and the "place" of the current rollout if there is one.
    credit: ``{"version": int}``. The reply waits for a credit.
    sum: ``{"place": (...), "part": Tensor float64 [3]}``. The reply is the sum over all samplers of
        this iteration, or None.

    The reply to push, pull and credit is ``{"version": int, "parameters": Tensor [n] | None, "done": bool,
    "place": (...), "used": bool, "credit": bool, "exchanges": int, "remaining": float}`` with

    - parameters: None if the sampler's version is the current one.
    - used: Whether the pushed gradient or unroll was used.
    - credit: Whether the sampler may make its next gradient. Otherwise it requests a credit.
    - exchanges: Number of pushes for the current rollout.
    - remaining: Remaining fraction of the run, from 1 down to 0.
    """

    def __init__(self, gradients: GradientSource[P], models: ModelServer, read: Reader[P]) -> None:
        """``read`` reads a push from its payload."""
        self._gradients, self._models, self._read = gradients, models, read
        self._done = False

    @property
    def services(self) -> Mapping[str, Handler]:
        in_step = isinstance(self._gradients, SynchronousGradients)
        own = {"sum": self.sum} if in_step else {"credit": self.credit}
        return {"push": self.push, "pull": self.pull, **own}

    def push(self, sender: str, payload: Payload) -> DeferredReply:
        """Raises TypeError or ValueError, naming the field, if ``payload`` is not a push."""
        version = field(payload, "version", int)
        source = Source(sender, field(payload, "incarnation", str), field(payload, "sequence", int))
        push = self._read(Push(source, place(payload), version), payload)
        deferred = DeferredReply()
        self._gradients.push(push, partial(self._reply, deferred, version))
        return deferred

    def pull(self, sender: str, payload: Payload) -> DeferredReply:
        """Raises TypeError, naming the field, if ``payload`` is not a pull."""
        version = field(payload, "version", int)
        rollout = place(payload) if isinstance(payload, dict) and "place" in payload else None
        deferred = DeferredReply()
        self._gradients.join(sender, partial(self._reply, deferred, version, False), rollout)
        return deferred

    def credit(self, sender: str, payload: Payload) -> DeferredReply:
        """Raises TypeError, naming the field, if ``payload`` is not a request for a credit."""
        assert isinstance(self._gradients, GradientQueue)
        version = field(payload, "version", int)
        deferred = DeferredReply()
        self._gradients.request(sender, partial(self._reply, deferred, version, False))
        return deferred

    def sum(self, sender: str, payload: Payload) -> DeferredReply:
        """Raises TypeError or ValueError, naming the field, if ``payload`` is not a part of a sum."""
        assert isinstance(self._gradients, SynchronousGradients)
        deferred = DeferredReply()
        part = vector(payload, "part", torch.float64, _STATISTICS)
        self._gradients.add(sender, place(payload), part, deferred.resolve)
        return deferred

    def finish(self) -> None:
        """Reports the end of the run with all answers from now on, and sends the deferred ones."""
        self._done = True
        self._gradients.close()

    def _reply(self, deferred: DeferredReply, version: int, used: bool, credit: bool) -> None:
        current = self._gradients.place  # read before the parameters, so that it never belongs to newer ones
        newest, parameters = self._models.newer_than(version)
        answer = {
            "version": newest,
            "parameters": parameters,
            "done": self._done,
            "place": tuple(current),
            "used": used,
            "credit": credit,
            "exchanges": self._gradients.exchanges,
            "remaining": self._gradients.remaining,
        }
        deferred.resolve(answer)
