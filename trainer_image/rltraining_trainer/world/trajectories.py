"""`world.trajectories()`: a bounded queue from samplers to a learner. Each item counts once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from rltraining_api.contract import Warning
from torch import Tensor

from rltraining_trainer.dataflow import (
    WANTS_NONE,
    ModelServer,
    Trajectory,
    TrajectoryQueue,
    TrajectoryServer,
)
from rltraining_trainer.dataflow.credit_limit import CreditControl
from rltraining_trainer.dataflow.trajectory_queue import QueueCounts, Source
from rltraining_trainer.metrics import Numbers
from rltraining_trainer.transport import Handler, Payload, Stopped
from rltraining_trainer.world.data_path import DataPath, SamplerPath
from rltraining_trainer.world.session import Connections, LearnerSession

PATH = "trajectories"
"""Prefix of the services of each learner to which its samplers push."""
LOOK_SECONDS = 0.25
"""Seconds between two checks of the signal to stop while the learner waits for items."""


class Trajectories:
    """A bounded queue, made by `World.trajectories`. Samplers put items, their learner takes them.

    An item is used at most once, through reconnections and restarts: ``pushed = used + dropped + queued``.
    Items in the queue of a learner that dies count as ``dropped``.

        def sampler(world):                                 def learner(world):
            queue = world.trajectories()                        queue = world.trajectories(capacity=4)
            world.start(parameters)                             run = world.run(policy, optimizer=optimizer)
            while True:                                         run.publish(parameters)
                ...                                             while run.active():
                queue.put({"reward": reward, ...})                  for unroll in queue.get(8):
                                                                        ...
                                                                    run.publish(parameters)
    """

    lags: list[int]
    """In a learner: for each item of the last `get`, the number of versions by which its parameters were older than
    the newest ones. Empty if samplers do not receive parameters."""

    def put(self, item: Payload) -> None:
        """In a sampler: sends an item, and returns when the previous item has been accepted.

        The sampler makes the next item while one is sent, unless that could exceed ``max_lag``. A full queue blocks the
        sampler. The answer updates the network that `World.start` was given.

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
            RuntimeError: samplers wait for the first `Run.publish`.
            ValueError: ``count`` is less than 1.
            Stopped: this process should end.
        """
        raise RuntimeError("trajectories.get() is for learners")

    def counts(self) -> QueueCounts:
        """In a learner: returns the counts of pushed, used, dropped and queued items."""
        raise RuntimeError("trajectories.counts() is for learners")


class LearnerTrajectories(Trajectories, DataPath):
    """A learner's side of the path."""

    def __init__(
        self,
        capacity: int,
        models: ModelServer,
        stopping: threading.Event,
        *,
        max_lag: int | None = None,
        large: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``large``: items are at least some kilobytes (see ``DataPath.sends_large``)."""
        if max_lag is not None and max_lag < 1:
            raise ValueError(f"the largest policy lag must be at least 1, not {max_lag}")
        self.lags = []
        self._max_lag = max_lag
        self._count = 0  # number of items of the largest batch
        self.sends_large = large
        self._queue = TrajectoryQueue(capacity, clock)
        self._credits = CreditControl(self._queue.limit, clock)
        self._set_batch_size(1)
        self._server = TrajectoryServer(self._queue, models)
        self._models, self._stopping = models, stopping
        self._batch: list[Trajectory] = []  # an incomplete batch
        self._aged = 0  # number of items that became too old in an incomplete batch
        self._sources: list[Source] = []  # sources of the items of the last batch

    @property
    def services(self) -> Mapping[str, Handler]:
        server = self._server
        return {f"{PATH}/push": server.push, f"{PATH}/pull": server.pull, f"{PATH}/credit": server.credit}

    def get(self, count: int = 1, timeout: float = 1.0) -> list[Any]:
        if count < 1:  # a loop would run forever, and take nothing
            raise ValueError(f"trajectories.get(): count must be at least 1, not {count}")
        # Collect a batch of items that are not too old.
        deadline = time.monotonic() + timeout
        self._models.check_published("trajectories.get()")
        self._set_batch_size(count)
        self._credits.wait()
        while len(self._batch) < count:
            if self._stopping.is_set():
                raise Stopped("asked to end")
            left = max(0.0, deadline - time.monotonic())
            trajectory = self._queue.get(min(left, LOOK_SECONDS), self._is_new)
            if trajectory is not None:
                self._batch.append(trajectory)
                if len(self._batch) == count:
                    self._drop_aged()
            elif left <= LOOK_SECONDS:
                return []
        batch, self._batch = self._batch, []
        self._credits.on_batch(count, self._queue.crowded)
        # Compute the lags of the items.
        version = self._models.version
        self.lags = [version - one.version for one in batch if one.version != WANTS_NONE]
        self._sources = [one.source for one in batch]
        return [one.item for one in batch]

    def _set_batch_size(self, count: int) -> None:
        """Limits the items under way to half of ``max_lag`` batches, since samplers differ in speed."""
        if self._max_lag is not None and count > self._count:
            self._count = count
            self._credits.set_batch(count, count * self._max_lag // 2)

    def _drop_aged(self) -> None:
        """Drops items of the batch that became too old while it was incomplete."""
        fresh = [one for one in self._batch if self._is_new(one)]
        self._aged += len(self._batch) - len(fresh)
        self._batch = fresh

    def _is_new(self, trajectory: Trajectory) -> bool:
        if self._max_lag is None or trajectory.version == WANTS_NONE:
            return True
        return self._models.version - trajectory.version <= self._max_lag

    def counts(self) -> QueueCounts:
        pushed, used, dropped, queued, stale = self._queue.counts()
        held, aged = len(self._batch), self._aged
        return QueueCounts(pushed, used - held - aged, dropped + aged, queued + held, stale + aged)

    def facts(self) -> dict[str, Any]:
        return {"sources": [tuple(source) for source in self._sources]}

    def metrics(self) -> Numbers:
        return {f"unrolls/{name}": count for name, count in self.counts()._asdict().items()}

    def warnings(self) -> tuple[Warning, ...]:
        return self._queue.slow.warnings("unrolls", self._max_lag)

    def finish(self) -> None:
        self._server.finish()

    def close(self) -> None:
        self._queue.close()

    def get_state(self) -> dict[str, Any]:
        _, used, dropped, _, stale = self.counts()
        return {**self._queue.get_state(), "used": used, "dropped": dropped, "stale": stale}

    def set_state(self, state: dict[str, Any]) -> None:
        self._queue.set_state(state)  # type: ignore[arg-type]


class SamplerTrajectories(Trajectories, SamplerPath):
    """A sampler's side of the path, which puts items into the queue of the sampler's learner."""

    alone = True

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._session: LearnerSession | None = None

    @property
    def version(self) -> int:
        return WANTS_NONE if self._session is None else self._session.version

    def attach(self, parameters: Tensor | None) -> None:
        context = self._connections.context
        learner = context.index % len(context.learners)
        self._session = self._connections.learner(learner, PATH, parameters)
        self._session.attach()
        self._get_credit(self._session)

    def put(self, item: Payload) -> None:
        self._connections.check_started("trajectories.put()")
        if self._session is None:
            self.attach(None)
        assert self._session is not None
        self._session.send(item=item)
        if not self._session.answer["ahead"] and not self._session.done:
            self._session.settle()
        self._get_credit(self._session)

    def _get_credit(self, session: LearnerSession) -> None:
        """Waits for the credit for the next item. Raises Stopped."""
        self._connections.check(session)
        while not session.answer["credit"]:
            session.request(f"{PATH}/credit")
            self._connections.check(session)
