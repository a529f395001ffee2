"""`world.trajectories()`: a bounded queue from samplers to a learner. Each item counts once."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

from rltraining_trainer.dataflow import Source, TrajectoryQueue
from rltraining_trainer.dataflow.fields import field
from rltraining_trainer.dataflow.trajectory_queue import QueueCounts
from rltraining_trainer.transport import DeferredReply, Handler, Payload, Stopped
from rltraining_trainer.world.members import Member, Pending
from rltraining_trainer.world.services import INNER

PUSH = f"{INNER}push"
"""The service of each learner to which its samplers push."""
LOOK_SECONDS = 0.25
"""While the learner waits for items, it checks the signal to stop with this period."""


class Trajectories:
    """A bounded queue, made by `World.trajectories`. Samplers put items, their learner takes them.

    An item is used at most once, through reconnections and restarts: ``pushed = used + dropped + queued``.
    Items in the queue of a learner that dies count as ``dropped``.

        def sampler(world):                                 def learner(world):
            queue = world.trajectories()                        queue = world.trajectories(capacity=4)
            world.start()                                       run = world.run(policy, optimizer=optimizer)
            while True:                                         while run.goes_on():
                ...                                                 for unroll in queue.get(8):
                queue.put({"reward": reward, ...})                      ...
    """

    def put(self, item: Payload) -> None:
        """In a sampler: sends an item, and returns when the previous item has been accepted.

        The sampler makes the next item while one is sent. A full queue blocks the sampler.

        Args:
            item: tensors on the CPU and plain values. Tensors are not copied: do not change them until the
                next ``put`` has returned.

        Raises:
            TypeError: ``item`` holds anything else.
            Stopped: the run is done, or this process should end.
        """
        raise RuntimeError("trajectories.put() is for samplers")

    def get(self, count: int = 1, timeout: float = 1.0) -> list[Any]:
        """In a learner: returns the ``count`` oldest items, which count as used from now on.

        Returns:
            An empty list after ``timeout`` seconds with fewer items. They are kept for the next call.

        Raises:
            Stopped: this process should end.
        """
        raise RuntimeError("trajectories.get() is for learners")

    def counts(self) -> QueueCounts:
        """In a learner: returns the counts of pushed, used, dropped and queued items."""
        raise RuntimeError("trajectories.counts() is for learners")


class LearnerTrajectories(Trajectories):
    """A learner's side: a `DataPath`."""

    def __init__(self, capacity: int, stopping: threading.Event) -> None:
        self._queue: TrajectoryQueue[Any] = TrajectoryQueue(capacity)
        self._items: list[Any] = []  # of an incomplete batch
        self._stopping = stopping

    @property
    def services(self) -> Mapping[str, Handler]:
        return {PUSH: self._push}

    def get(self, count: int = 1, timeout: float = 1.0) -> list[Any]:
        deadline = time.monotonic() + timeout
        while len(self._items) < count:
            if self._stopping.is_set():
                raise Stopped("asked to end")
            left = max(0.0, deadline - time.monotonic())
            item = self._queue.get(min(left, LOOK_SECONDS))
            if item is not None:
                self._items.append(item[0])
            elif left <= 0.0:
                return []
        items, self._items = self._items, []
        return items

    def counts(self) -> QueueCounts:
        return self._queue.counts()

    def metrics(self) -> dict[str, float | None]:
        return self._queue.counts().metrics()

    def tick(self) -> None:
        """Nothing: the queue accepts an item as soon as there is room."""

    def finish(self) -> None:
        self._queue.close()

    def close(self) -> None:
        self._queue.close()

    def get_state(self) -> dict[str, Any]:
        return {**self._queue.get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        self._queue.set_state(state)  # type: ignore[arg-type]

    def _push(self, sender: str, payload: Payload) -> DeferredReply:
        """``{"incarnation": str, "sequence": int, "item": Any}``, answered when the item is accepted."""
        source = Source(sender, field(payload, "incarnation", str), field(payload, "sequence", int))
        deferred = DeferredReply()
        item = (field(payload, "item", object),)  # in a tuple, as an item may be None
        self._queue.push(item, source, lambda: deferred.resolve(None))
        return deferred


class SamplerTrajectories(Trajectories):
    """A sampler's side.

    Args:
        learner: takes this sampler's items.
        incarnation: of this process.
    """

    def __init__(self, learner: Member, incarnation: str) -> None:
        self._learner, self._incarnation = learner, incarnation
        self._sequence = 0
        self._pending: Pending | None = None

    def put(self, item: Payload) -> None:
        self._sequence += 1
        message = {"incarnation": self._incarnation, "sequence": self._sequence, "item": item}
        if self._pending is not None:
            self._pending.result()
        self._pending = self._learner.start(PUSH, message)
