"""A shard of the replay memory in this process, and the program of pods that do nothing but keep one."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from rltraining_api.algorithms import DdpgApex, DqnApex
from rltraining_api.algorithms.replay import Replay
from rltraining_api.contract import RENDEZVOUS_PATH, ExitCode

from rltraining_trainer.checkpoint import CheckpointStore, CheckpointWriter
from rltraining_trainer.dataflow.replay import Column, ReplayBuffer, ReplayShard
from rltraining_trainer.environments import make_spaces
from rltraining_trainer.errors import BadConfiguration
from rltraining_trainer.roles.context import Context
from rltraining_trainer.roles.link import FAREWELL, LearnerLink, is_large
from rltraining_trainer.roles.scrape import kept_numbers, scraped
from rltraining_trainer.transport import Endpoint, MemberServer, Stopped

_LOG = logging.getLogger(__name__)

REPORT_PERIOD = 0.05
"""Seconds between two reports of a pod that only keeps a shard."""


class KeptShard:
    """One of ``shards`` equal shards, which this process keeps: empty, or, if the job has shards saved, what was saved last."""

    def __init__(
        self, context: Context, settings: Replay, spaces: tuple[spaces.Space, spaces.Space], shards: int
    ) -> None:
        spec = context.job.spec
        seed = int(np.random.SeedSequence([spec.seed, context.index]).generate_state(1)[0])
        self.shard = ReplayShard(make_buffer(settings, transition_columns(*spaces), shards, seed))
        self.shard.set_limit(0)  # until the learner says more: samplers may find the shard before it does
        self._every_seconds = spec.checkpoint.every_seconds
        self._next_checkpoint = time.monotonic() + self._every_seconds
        self._checkpoints: CheckpointWriter | None = None
        self._step = 0  # of checkpoints, when nothing had been inserted
        if settings.checkpoint:
            store = CheckpointStore(f"{context.storage}/replay/{context.pod}", keep=1)
            self._restore(store)
            self._checkpoints = CheckpointWriter(store)

    def describe(self, endpoint: Endpoint) -> dict[str, Any]:
        """What the learner is to be told of it: where it is, what it holds, and why it could not be saved."""
        failure = self._checkpoints.failure if self._checkpoints is not None else None
        return {**self.shard.describe(), "url": endpoint.url, "failure": failure}

    def tend(self, now: float) -> None:
        """Save it, if that is due."""
        if self._checkpoints is not None and now >= self._next_checkpoint:
            self._next_checkpoint = now + self._every_seconds
            step = self._step + self.shard.counts.inserted
            self._checkpoints.submit(step, self.shard.get_state())  # which nobody else has

    def close(self) -> None:
        if self._checkpoints is not None:
            self._checkpoints.close(timeout=20.0)

    def _restore(self, store: CheckpointStore) -> None:
        loaded = store.load_newest()
        if loaded is None:
            return
        try:
            self.shard.set_state(loaded.state)
        except (ValueError, KeyError) as error:  # the number of shards changed, and so their capacity
            _LOG.warning("the shard begins empty: %s is of another one: %s", loaded.uri, error)
        else:
            _LOG.info("the shard went on from %s", loaded.uri)
        # A checkpoint of an earlier step than this one's would count as older.
        self._step = loaded.step - self.shard.counts.inserted


def run_replay(context: Context) -> int:
    """Keep a shard until the learner says that the run is done. Returns the exit code."""
    spec = context.job.spec
    settings = spec.algorithm.parameters
    assert isinstance(settings, DqnApex | DdpgApex), "nothing else has a replay"
    spaces = make_spaces(spec.environment)
    kept = KeptShard(context, settings.replay, spaces, len(context.replays))
    endpoint = Endpoint(context.pod, context.token, kept.shard.services, direct=is_large(spaces[0]))
    learner = LearnerLink(context, context.learners[0], endpoint, "report", None, alone=False)
    http = MemberServer(
        context.http_port,
        context.token,
        ready=learner.attached.is_set,
        documents={
            RENDEZVOUS_PATH: lambda: {"url": endpoint.url, "incarnation": endpoint.incarnation},
        },
        metrics=scraped(context, "replay", lambda: kept_numbers(kept.shard)),
        host=context.http_host,
    )
    endpoint.start()
    http.start()
    learner.attach()
    nothing = torch.zeros(0)
    while not learner.done:
        learner.send(steps=0, episodes=0, returns=nothing, shard=kept.describe(endpoint))
        learner.settle()
        kept.shard.set_limit(learner.answer["limit"])
        kept.tend(time.monotonic())
        if context.stopping.wait(REPORT_PERIOD):
            raise Stopped("asked to end")
    kept.shard.set_limit(None)  # samplers that wait are to hear of the end, too
    context.stopping.wait(FAREWELL)
    kept.close()
    return ExitCode.DONE


def make_buffer(settings: Replay, columns: Mapping[str, Column], shards: int, seed: int) -> ReplayBuffer:
    """One of ``shards`` equal parts of the memory.

    Raises:
        BadConfiguration: observations are not stacks of ``frameStack`` frames, or there is no memory for so many.
    """
    capacity = -(-settings.capacity // shards)
    stack, shape = settings.frame_stack, columns["observation"].shape
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


def transition_columns(observation: spaces.Space, action: spaces.Space) -> dict[str, Column]:
    """What a transition is made of, as ``algorithms.transitions`` makes them.

    Raises:
        BadConfiguration: observations or actions are not one array of numbers.
    """
    seen_shape = _array_shape(
        "observations", observation, "environment.wrappers: [{name: FlattenObservation}]"
    )
    taken_shape = _array_shape("actions", action, "environment.wrappers, or use ppo, a2c, a3c or impala")
    kind = np.float32 if np.issubdtype(observation.dtype, np.floating) else observation.dtype
    seen = Column(seen_shape, torch.from_numpy(np.empty(0, kind)).dtype)
    number = Column((), torch.float32)
    discrete = isinstance(action, spaces.Discrete)
    taken = Column((), torch.int64) if discrete else Column((math.prod(taken_shape),), torch.float32)
    return {
        "observation": seen,
        "action": taken,
        "reward": number,
        "discount": number,
        "next_observation": seen,
    }


def _array_shape(name: str, space: spaces.Space, remedy: str) -> tuple[int, ...]:
    """Returns a space's shape. Raises BadConfiguration with ``remedy`` if it has no array."""
    if space.shape is None or space.dtype is None or space.dtype.kind not in "biuf":
        raise BadConfiguration(
            f"spec.environment: {name} of {space} are not one array of numbers; "
            f"wrap the environment with {remedy}"
        )
    return tuple(space.shape)
