"""Unrolls come in, parameters go out: the learner's side of the trajectory dataflow, as RPC services.

A sampler pushes an unroll with the version of its parameters, and gets newer parameters, if there are any,
with the answer. While the queue is full the answer is deferred, which holds the sampler back; it is given when
there is room, with the parameters that are the newest *then*.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from rltraining_trainer.dataflow.fields import field
from rltraining_trainer.dataflow.model_server import ModelServer
from rltraining_trainer.dataflow.trajectory_queue import Source, TrajectoryQueue
from rltraining_trainer.transport import DeferredReply, Handler, Payload


@dataclass(frozen=True)
class Trajectory:
    """One unroll as it came from a sampler."""

    source: Source
    version: int
    """The parameters the sampler had, from which policy lag is measured."""
    unroll: dict[str, Tensor]


class TrajectoryServer:
    """Answers the services "push" and "pull".

    push: ``{"incarnation": str, "sequence": int, "version": int, "unroll": dict of tensors}``; pull:
        ``{"version": int}``. Both are answered with ``{"version": int, "parameters": Tensor [N] | None,
        "done": bool}``: parameters only when the sampler's version is not the current one; done when the run
        is over and the sampler should end.
    """

    def __init__(self, queue: TrajectoryQueue[Trajectory], models: ModelServer) -> None:
        self._queue = queue
        self._models = models
        self._done = False

    @property
    def services(self) -> Mapping[str, Handler]:
        return {"push": self.push, "pull": self.pull}

    def push(self, sender: str, payload: Payload) -> DeferredReply:
        """Raises TypeError, naming the field, if `payload` is not a push."""
        version = field(payload, "version", int)
        source = Source(sender, field(payload, "incarnation", str), field(payload, "sequence", int))
        trajectory = Trajectory(source, version, field(payload, "unroll", dict))
        deferred = DeferredReply()
        self._queue.push(trajectory, source, lambda: deferred.resolve(self._answer(version)))
        return deferred

    def pull(self, sender: str, payload: Payload) -> Payload:
        """Raises TypeError, naming the field, if `payload` is not a pull."""
        return self._answer(field(payload, "version", int))

    def finish(self) -> None:
        """The run is over: every answer says so from now on, and the deferred ones are given at once."""
        self._done = True
        self._queue.close()

    def _answer(self, version: int) -> Payload:
        newest, parameters = self._models.newer_than(version)
        return {"version": newest, "parameters": parameters, "done": self._done}
