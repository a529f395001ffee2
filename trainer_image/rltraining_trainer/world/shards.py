"""A shard of the replay in this process: in a sampler, in learner 0, or in a pod that only keeps a shard."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from rltraining_api.algorithms.replay import Replay as ReplaySettings

from rltraining_trainer.checkpoint import CheckpointStore, CheckpointWriter
from rltraining_trainer.dataflow.replay import Column, ReplayBuffer, ReplayShard
from rltraining_trainer.dataflow.reports import StepCounters
from rltraining_trainer.errors import BadConfiguration
from rltraining_trainer.roles.context import Context
from rltraining_trainer.roles.spec_watcher import SpecWatcher
from rltraining_trainer.transport import Endpoint
from rltraining_trainer.world.session import LINGER_SECONDS, Connections

_LOG = logging.getLogger(__name__)

REPORT_PERIOD_SECONDS = 0.05
"""Seconds between two reports of a pod that only keeps a shard."""


class LocalShard:
    """One of ``shards`` equal shards. It starts empty, or with its newest checkpoint if the job saves shards.

    Raises:
        BadConfiguration: see ``make_buffer``.
    """

    def __init__(
        self,
        context: Context,
        live: SpecWatcher,
        settings: ReplaySettings,
        columns: Mapping[str, Column],
        shards: int,
        endpoint: Endpoint,
    ) -> None:
        spec = context.job.spec
        seed = int(np.random.SeedSequence([spec.seed, context.index]).generate_state(1)[0])
        self.buffer = make_buffer(settings, columns, shards, seed)
        self.shard = ReplayShard(self.buffer)
        self.shard.set_limit(0)  # samplers may find the shard before the learner sets a limit
        self._endpoint = endpoint
        self._live = live
        self._every_seconds = spec.checkpoint.every_seconds
        self._next_checkpoint = time.monotonic() + self._every_seconds
        self._checkpoints: CheckpointWriter | None = None
        self._first_step = 0  # step of a checkpoint without insertions
        if settings.checkpoint:
            store = CheckpointStore(f"{context.storage}/replay/{context.pod}", keep=1)
            self._restore(store)
            self._checkpoints = CheckpointWriter(store)
        endpoint.serve(self.shard.services)

    def describe(self) -> dict[str, Any]:
        """Returns the address, the counts, and the error of the last checkpoint, for the learner."""
        failure = self._checkpoints.failure if self._checkpoints is not None else None
        return {**self.shard.describe(), "url": self._endpoint.url, "failure": failure}

    def tick(self, now: float) -> None:
        """Saves the shard, if that is due."""
        if self._checkpoints is None:
            return
        # Apply the current interval, counted from the newest checkpoint.
        self._live.look(now)
        every_seconds = self._live.checkpoint.every_seconds
        self._next_checkpoint += every_seconds - self._every_seconds
        self._every_seconds = every_seconds
        # Save the shard.
        if now >= self._next_checkpoint:
            self._next_checkpoint = now + self._every_seconds
            step = self._first_step + self.shard.counts.inserted
            self._checkpoints.submit(step, self.shard.get_state())

    def close(self) -> None:
        """Completes a write in progress."""
        if self._checkpoints is not None:
            self._checkpoints.close(timeout=20.0)

    def _restore(self, store: CheckpointStore) -> None:
        loaded = store.load_newest()
        if loaded is None:
            return
        try:
            self.shard.set_state(loaded.state)
        except (ValueError, KeyError) as error:  # the number of shards, and so their capacity, has changed
            _LOG.warning("the shard starts empty: %s is of another one: %s", loaded.uri, error)
        else:
            _LOG.info("the shard continues from %s", loaded.uri)
        # Number later checkpoints after this one, since an earlier step would count as older.
        self._first_step = loaded.step - self.shard.counts.inserted


def keep_shard(local: LocalShard, connections: Connections) -> None:
    """Keeps a shard in a separate pod, and reports it to learner 0, until the run is done. Raises Stopped."""
    stopping = connections.context.stopping
    learner = connections.learner(0, "report", None)
    learner.attach()
    nothing = StepCounters().take()
    while not learner.done:
        learner.send(**nothing, shard=local.describe())
        learner.settle()
        local.shard.set_limit(learner.answer["limit"])
        local.tick(time.monotonic())
        if stopping.wait(REPORT_PERIOD_SECONDS):
            connections.check()
    # Release blocked samplers, which then receive the end of the run.
    local.shard.set_limit(None)
    stopping.wait(LINGER_SECONDS)
    connections.check(learner)


def make_buffer(
    settings: ReplaySettings, columns: Mapping[str, Column], shards: int, seed: int
) -> ReplayBuffer:
    """Returns one of ``shards`` equal parts of the replay.

    Raises:
        BadConfiguration: observations are not stacks of ``frameStack`` frames, or there is not enough memory.
    """
    capacity = -(-settings.capacity // shards)
    stack = settings.frame_stack
    shape = columns["observation"].shape if "observation" in columns else ()
    if stack > 1 and shape[:1] != (stack,):
        raise BadConfiguration(
            f"spec.algorithm: replay.frameStack is {stack}, but observations {list(shape)} are not stacks of {stack} "
            "along their first axis; set it to 1, or wrap the environment with "
            "gymnasium.wrappers.FrameStackObservation"
        )
    try:
        return ReplayBuffer(
            capacity,
            columns,
            kind=settings.kind,
            priority_exponent=settings.priority_exponent,
            frame_stack=stack,
            seed=seed,
        )
    except MemoryError as error:
        raise BadConfiguration(
            f"spec.algorithm: replay.capacity asks for {capacity} transitions in one shard, with observations "
            f"{list(shape)}, for which there is no memory; lower it"
        ) from error
