"""`world.blocks()`: the learner deals blocks of environments to samplers, and gets one rollout of each block for an update.

This is the path of `spec.reproducible`. A rollout does not depend on its sampler, or on the time when it is made.
"""

from __future__ import annotations

import platform
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import torch
from rltraining_api.contract import Warning
from rltraining_api.reproducible import Reproducible
from rltraining_api.status import ReplayStatus
from torch import Tensor

from rltraining_trainer.dataflow import WANTS_NONE, ModelServer
from rltraining_trainer.dataflow.block_queue import BlockQueue, BlockRollout, Work
from rltraining_trainer.dataflow.block_state import BlockState
from rltraining_trainer.dataflow.fields import field
from rltraining_trainer.dataflow.model_server import Snapshot
from rltraining_trainer.dataflow.replay import ReplayStats
from rltraining_trainer.metrics import Numbers
from rltraining_trainer.metrics.hash_chain import HashChain
from rltraining_trainer.networks.half_precision import bfloat16_instructions
from rltraining_trainer.transport import DeferredReply, Handler, Payload, Stopped
from rltraining_trainer.world.data_path import DataPath, SamplerPath
from rltraining_trainer.world.gradients import UPDATE_TIMEOUT
from rltraining_trainer.world.session import Connections, LearnerSession

PATH = "blocks"
"""Prefix of the services of the learner."""


@cache
def processor() -> str:
    """Describes the processor features on which results of arithmetic depend in this process."""
    return (
        f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()} {bfloat16_instructions()}".rstrip()
    )


class KeptReplay(Protocol):
    """A replay in the learner's process."""

    def stats(self) -> ReplayStats: ...
    def get_state(self) -> dict[str, Any]: ...
    def set_state(self, state: dict[str, Any]) -> None: ...


class LearnerBlocks(DataPath):
    """A learner's side of the path.

    Each rollout is counted exactly once: ``pushed = used + dropped + queued``.

    Args:
        settings: ``spec.reproducible``.
        read: returns the rollout of a message, or raises TypeError or ValueError.
        models: the parameters.
        samplers: returns the names of all samplers.
        lag: 0: the rollouts of an update are made with the parameters after all earlier updates. 1: without the last of
            these updates, so that samplers make rollouts while the learner updates or waits for other samplers.
        folder: folder of the file with the hashes.
        large: messages are large (see ``DataPath.sends_large``).
        replay: the replay that the algorithm fills with the rollouts, for checkpoints and metrics.
    """

    def __init__(
        self,
        settings: Reproducible,
        read: Callable[[Payload], dict[str, Any]],
        models: ModelServer,
        samplers: Callable[[], Sequence[str]],
        lag: int,
        folder: Path,
        stopping: threading.Event,
        *,
        large: bool,
        replay: KeptReplay | None = None,
    ) -> None:
        self.sends_large = large
        self._replay = replay
        self._read, self._models, self._stopping = read, models, stopping
        self._lag = lag
        # The parameters for the rollouts of each update, and after a restart the parameters for the first rollouts.
        self._snapshots: dict[int, Snapshot] = {}
        self._restored: Tensor | None = None
        self._queue = BlockQueue(settings.blocks, samplers, settings.take_over_seconds)
        self._hashes = HashChain(folder, settings.hash_every)
        self._processors = {processor()}  # processors of all processes of the run
        self._done = False

    def take(self, timeout: float = 1.0) -> list[BlockRollout]:
        """Returns the rollouts of the next update in the order of blocks, or an empty list after ``timeout`` seconds.

        Raises Stopped.
        """
        if self._stopping.is_set():
            raise Stopped("asked to end")
        return self._queue.rollouts() if self._queue.is_ready(timeout) else []

    @property
    def update(self) -> int:
        """Number of complete updates."""
        return self._queue.update

    def end(self, parameters: Tensor, environment_steps: int) -> None:
        """Ends an update with the rollouts of `take`, after which the parameters are these ``[N]``."""
        self._queue.advance()
        self._hashes.add(parameters, self._queue.update, environment_steps)

    @property
    def services(self) -> Mapping[str, Handler]:
        return {f"{PATH}/push": self._push, f"{PATH}/deliver": self._deliver, f"{PATH}/pull": self._pull}

    def on_group_formed(self, rank: int, size: int) -> None:
        self._release()

    def tick(self) -> None:
        # Release rollouts, since the parameters of the last update are published.
        self._release()

    def finish(self) -> None:
        self._done = True
        self._hashes.finish()
        self._queue.close()

    def close(self) -> None:
        self._queue.close()

    def metrics(self) -> Numbers:
        counts = {f"unrolls/{name}": count for name, count in self._queue.counts().items()}
        kept = self._replay.stats().metrics() if self._replay is not None else {}
        return {**counts, **kept, "blocks/moved": self._queue.moved}

    def replay(self) -> ReplayStatus | None:
        return self._replay.stats().status() if self._replay is not None else None

    def warnings(self) -> tuple[Warning, ...]:
        if len(self._processors) == 1:
            return ()
        found = " and ".join(sorted(self._processors))
        message = (
            f"spec.reproducible: processors of several kinds round differently, and this run has used {found}"
        )
        return (Warning(reason="ProcessorsDiffer", message=message),)

    def get_state(self) -> dict[str, Any]:
        return {
            "queue": self._queue.get_state(),
            "held": self._first_parameters() if self._lag else None,
            "replay": self._replay.get_state() if self._replay is not None else None,
            "hashes": self._hashes.get_state(),
            "processors": sorted(self._processors),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        self._processors |= set(state["processors"])
        self._queue.set_state(state["queue"])
        self._snapshots, self._restored = {}, state["held"]
        if self._replay is not None:
            self._replay.set_state(state["replay"])
        self._hashes.set_state(state["hashes"])

    def _release(self) -> None:
        """Lets samplers make the rollouts for which the newest parameters were missing."""
        first, newest = self._queue.update, self._models.newest
        if self._restored is not None:
            self._snapshots = {first: self._models.with_version(self._restored)}
            self._restored, newest = None, self._models.newest
        self._snapshots = {
            update: self._snapshots.get(update, newest) for update in range(first, first + self._lag + 1)
        }
        self._queue.release(first + self._lag)

    def _first_parameters(self) -> Tensor | None:
        """Returns the parameters ``[N]`` with which the rollouts of this update are made."""
        snapshot = self._snapshots.get(self._queue.update)
        return self._restored if snapshot is None else snapshot.parameters

    def _push(self, sender: str, payload: Payload) -> DeferredReply:
        """Receives rollouts. Replies with work. Raises TypeError or ValueError, naming the field, for a wrong message."""
        version = field(payload, "version", int)
        rollouts = self._rollouts(payload)
        held: dict[int, int] = dict(field(payload, "held", list))
        # A new set, since the learner's thread may be reading the old one.
        self._processors = self._processors | {field(payload, "processor", str)}
        deferred = DeferredReply()
        reply = lambda work: deferred.resolve(self._answer(version, work))  # noqa: E731
        self._queue.ask(sender, rollouts, held, reply, working=field(payload, "working", bool))
        return deferred

    def _deliver(self, sender: str, payload: Payload) -> Payload:
        """Receives rollouts from a sampler. Its last request for work has no answer yet."""
        self._queue.deliver(sender, self._rollouts(payload))
        return True

    def _pull(self, sender: str, payload: Payload) -> Payload:
        return self._answer(field(payload, "version", int), [])

    def _answer(self, version: int, work: Sequence[Work]) -> Payload:
        # Send the parameters for this work. If they are gone, another sampler has done the work, and the update is over.
        snapshots = self._snapshots
        update = work[0].update if work else self._queue.update
        if (snapshot := snapshots.get(update)) is None:
            work = []
        newest, parameters = self._models.newer_than(version, snapshot)
        return {
            "version": newest,
            "parameters": parameters,
            "done": self._done,
            "ahead": self._lag > 0,
            "work": [
                (one.block, one.update, None if one.state is None else one.state.to_payload()) for one in work
            ],
        }

    def _rollouts(self, payload: Payload) -> list[BlockRollout]:
        return [self._rollout(item) for item in field(payload, "rollouts", list)]

    def _rollout(self, item: Payload) -> BlockRollout:
        block, update = field(item, "block", int), field(item, "update", int)
        return BlockRollout(block, update, self._read(item), field(item, "after", dict))


class SamplerBlocks(SamplerPath):
    """A sampler's side of the path."""

    alone = True

    def __init__(self, connections: Connections, deadline: float) -> None:
        self.work: list[Work] = []
        """The rollouts to make with the present parameters, before the next ``push``."""
        self._connections, self._deadline = connections, deadline
        self._session: LearnerSession | None = None

    @property
    def version(self) -> int:
        return WANTS_NONE if self._session is None else self._session.version

    def attach(self, parameters: Tensor | None) -> None:
        """Connects to the learner and gets its parameters. Raises Stopped."""
        timeout = UPDATE_TIMEOUT + self._deadline
        self._session = self._connections.learner(0, PATH, parameters, timeout=timeout)
        self._session.attach()

    def push(self, rollouts: Sequence[BlockRollout], held: Mapping[int, int]) -> None:
        """Sends rollouts, and gets work with its parameters. Raises Stopped.

        With a lag, the sampler requests its next work before it does the present work, and does not wait for messages. Do not
        modify the tensors of ``rollouts`` afterwards.

        Args:
            held: the blocks that this sampler has, with the update of their next rollout.
        """
        session = self._session
        assert session is not None
        items = [
            {"block": one.block, "update": one.update, "unroll": one.unroll, "after": one.after}
            for one in rollouts
        ]
        # If the learner has no work yet, it may be waiting for these rollouts.
        if session.is_unanswered and session.ask(f"{PATH}/deliver", {"rollouts": items}) is not None:
            items = []
        # Send the rollouts with a request for the next work, and wait if there is nothing to do.
        self.work = self._receive()
        while True:
            if items or not self.work or session.answer["ahead"]:
                self._ask(items, held)
                items = []
            if self.work:
                return
            self.work = self._receive()

    def _ask(self, items: list[dict[str, Any]], held: Mapping[int, int]) -> None:
        """Sends rollouts, and requests the work after the present work."""
        assert self._session is not None
        # Report only the blocks of this work, which may replace the other blocks.
        held = {one.block: one.update + 1 for one in self.work} if self.work else held
        self._session.send(
            rollouts=items, held=list(held.items()), working=bool(self.work), processor=processor()
        )

    def _receive(self) -> list[Work]:
        """Waits for the answer to the last message, if there is one. Returns its work."""
        session = self._session
        assert session is not None
        if not session.in_transit:
            return []
        session.settle()
        self._connections.check(session)
        if session.version != session.answer["version"]:
            # The answer to a repeated message relies on parameters of the learner's previous incarnation.
            session.refresh()
            return []
        return [
            Work(block, update, None if state is None else BlockState.from_payload(state))
            for block, update, state in session.answer["work"]
        ]
