"""RPC services of a learner that receive items into a queue and return parameters.

A sampler pushes an item with the version of its parameters, and receives newer parameters with the answer. A full queue, or
too many items under way, delay the answer, which blocks the sampler. A delayed answer contains the newest parameters of the
time when it is sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rltraining_trainer.dataflow.fields import field
from rltraining_trainer.dataflow.model_server import ModelServer
from rltraining_trainer.dataflow.trajectory_queue import Source, TrajectoryQueue
from rltraining_trainer.transport import DeferredReply, Payload


@dataclass(frozen=True)
class Trajectory:
    """One item as a sampler sent it."""

    source: Source
    version: int
    """Version of the sampler's parameters, or WANTS_NONE."""
    item: Any
    """Tensors and plain values, such as an unroll."""


class TrajectoryServer:
    """Answers the services "push" and "pull".

    push: ``{"incarnation": str, "sequence": int, "version": int, "item": Any}``
    pull: ``{"version": int}``

    Both answers are ``{"version": int, "parameters": Tensor [N] | None, "done": bool, "ahead": bool}``. The parameters
    are None if the sampler has the newest version. ``ahead``: the sampler may collect its next item while an item is
    under way. Otherwise it waits for the answer, so that its parameters are newer.
    """

    def __init__(self, queue: TrajectoryQueue[Trajectory], models: ModelServer) -> None:
        self._queue = queue
        self._models = models
        self._done = False

    def push(self, sender: str, payload: Payload) -> DeferredReply:
        """Raises TypeError, naming the field, if `payload` is not a push."""
        version = field(payload, "version", int)
        source = Source(sender, field(payload, "incarnation", str), field(payload, "sequence", int))
        trajectory = Trajectory(source, version, field(payload, "item", object))
        deferred = DeferredReply()
        self._queue.push(trajectory, source, lambda: deferred.resolve(self._answer(version)))
        return deferred

    def pull(self, sender: str, payload: Payload) -> DeferredReply:
        """Raises TypeError, naming the field, if `payload` is not a pull."""
        version = field(payload, "version", int)
        deferred = DeferredReply()
        # Nobody knows yet how many samplers there are, so this one waits for the answer to its first item.
        self._queue.request(sender, lambda: deferred.resolve(self._answer(version, ahead=False)))
        return deferred

    def finish(self) -> None:
        """Reports the end of the run with all answers from now on, and sends the delayed ones."""
        self._done = True
        self._queue.close()

    def _answer(self, version: int, *, ahead: bool = True) -> Payload:
        newest, parameters = self._models.newer_than(version)
        ahead = ahead and not self._queue.crowded
        return {"version": newest, "parameters": parameters, "done": self._done, "ahead": ahead}
