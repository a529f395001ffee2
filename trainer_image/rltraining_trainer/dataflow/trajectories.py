"""RPC services of a learner that receive items into a queue and return parameters.

A sampler pushes an item with the version of its parameters, and receives newer parameters with the answer. A full queue, or
too many items under way, delay the answer, which blocks the sampler. A delayed answer contains the parameters that are
the newest when it is sent.
"""

from __future__ import annotations

from rltraining_trainer.dataflow.credits import Reply
from rltraining_trainer.dataflow.fields import field
from rltraining_trainer.dataflow.model_server import ModelServer
from rltraining_trainer.dataflow.trajectory_queue import Source, Trajectory, TrajectoryQueue
from rltraining_trainer.transport import DeferredReply, Payload


class TrajectoryServer:
    """Answers the services "push", "pull" and "credit".

    push: ``{"incarnation": str, "sequence": int, "version": int, "item": Any}``
    pull and credit: ``{"version": int}``

    All answers are ``{"version": int, "parameters": Tensor [N] | None, "done": bool, "credit": bool, "ahead": bool}``. The
    parameters are None if the sampler has the newest version. Without ``credit`` the sampler requests one before it
    collects its next item. ``ahead``: it may collect the next item while an item is under way. Otherwise it waits for the
    answer, so that its parameters are newer.
    """

    def __init__(self, queue: TrajectoryQueue, models: ModelServer) -> None:
        self._queue = queue
        self._models = models
        self._done = False

    def push(self, sender: str, payload: Payload) -> DeferredReply:
        """Raises TypeError, naming the field, if `payload` is not a push."""
        version = field(payload, "version", int)
        source = Source(sender, field(payload, "incarnation", str), field(payload, "sequence", int))
        trajectory = Trajectory(source, version, field(payload, "item", object))
        deferred = DeferredReply()
        self._queue.push(trajectory, self._reply(deferred, version))
        return deferred

    def pull(self, sender: str, payload: Payload) -> Payload:
        """Raises TypeError, naming the field, if `payload` is not a pull."""
        return self._answer(field(payload, "version", int), credit=not self._queue.limited)

    def credit(self, sender: str, payload: Payload) -> DeferredReply:
        """Raises TypeError, naming the field, if `payload` is not a request for a credit."""
        version = field(payload, "version", int)
        deferred = DeferredReply()
        # A sampler that starts is not counted yet, so it waits for the answer to its first item.
        self._queue.request(sender, self._reply(deferred, version, ahead=False))
        return deferred

    def finish(self) -> None:
        """Reports the end of the run with all answers from now on, and sends the delayed ones."""
        self._done = True
        self._queue.close()

    def _reply(self, deferred: DeferredReply, version: int, *, ahead: bool = True) -> Reply:
        return lambda credit: deferred.resolve(self._answer(version, credit=credit, ahead=ahead))

    def _answer(self, version: int, *, credit: bool, ahead: bool = True) -> Payload:
        newest, parameters = self._models.newer_than(version)
        ahead = ahead and credit and not self._queue.crowded
        return {
            "version": newest,
            "parameters": parameters,
            "done": self._done,
            "credit": credit,
            "ahead": ahead,
        }
