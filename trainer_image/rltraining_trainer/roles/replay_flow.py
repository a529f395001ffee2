"""Transitions: samplers put them into a replay memory, the learner draws from it. Used by Ape-X."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from gymnasium import spaces
from rltraining_api.algorithms import DdpgApex, DqnApex
from rltraining_api.contract import Warning
from rltraining_api.status import ReplayStatus
from torch import Tensor

from rltraining_trainer.algorithms.apex import ApexLearner
from rltraining_trainer.algorithms.ddpg import DdpgActor, DdpgLearner
from rltraining_trainer.algorithms.dqn import DqnActor, DqnLearner
from rltraining_trainer.algorithms.reduce import Reduce
from rltraining_trainer.algorithms.transitions import Actor
from rltraining_trainer.dataflow import ModelServer, flatten_parameters
from rltraining_trainer.dataflow.replay import (
    DistributedReplay,
    LocalPeer,
    ReplayBatch,
    ShardPeer,
)
from rltraining_trainer.dataflow.reports import SamplerReports
from rltraining_trainer.networks import build_deterministic, build_q_network
from rltraining_trainer.roles.context import Context
from rltraining_trainer.roles.flow import WholeState
from rltraining_trainer.roles.followers import Drawers, Follower, draws
from rltraining_trainer.roles.link import is_large
from rltraining_trainer.roles.live_spec import LiveSpec
from rltraining_trainer.roles.progress import Experience
from rltraining_trainer.roles.shards import KeptShard, transition_columns
from rltraining_trainer.transport import Endpoint, Handler

Settings = DqnApex | DdpgApex
Spaces = tuple[spaces.Space, spaces.Space]

PATIENCE = 0.02
"""Seconds for which the learner waits for a batch before it looks whether samplers that wait for it may go on."""


class ReplayFlow(WholeState[ApexLearner[Any]]):
    """The learner's side: a ``Flow``.

    The first learner hears the reports of those who keep shards. It tells the other learners where the shards are.
    """

    def __init__(
        self,
        context: Context,
        settings: Settings,
        spaces: Spaces,
        models: ModelServer,
        device: torch.device,
        live: LiveSpec,
        endpoint: Callable[[], Endpoint],
    ) -> None:
        self.algorithm = _make_learner(settings, context, spaces, device)
        self._pod = context.pod
        self._large = is_large(spaces[0])
        self._endpoint = endpoint
        seed = context.job.spec.seed + context.index
        item_bytes = sum(column.nbytes for column in transition_columns(*spaces).values())
        self._replay = DistributedReplay(
            self._dial, settings.replay, settings.batch_size, seed=seed, item_bytes=item_bytes
        )
        self._first = context.index == 0
        self._reports = SamplerReports(
            models,
            self._announce,
            self._replay.insert_limit,
            lambda: live.samplers,
            anew=len(context.learners) == 1,  # otherwise those that live have what was learnt from it
        )
        here = self._first and settings.replay.placement == "Learner"
        self._kept = KeptShard(context, settings.replay, spaces, 1) if here else None
        self._failures: dict[str, str | None] = {}  # by who keeps the shard: why it could not be saved
        self._moments: list[Tensor] = []  # moments of observations that are not merged yet
        self._others = Drawers(self._replay.shards)
        self._follower = Follower(
            context, endpoint, "shards", lambda: draws(self._replay.stats()), self._replay.set_shards
        )

    @property
    def sends_large(self) -> bool:
        return self._large

    @property
    def services(self) -> Mapping[str, Handler]:
        if not self._first:
            return {}
        kept = self._kept.shard.services if self._kept is not None else {}
        return {**kept, **self._reports.services, **self._others.services}

    def next_batch(self, timeout: float) -> ReplayBatch | None:
        deadline = time.monotonic() + timeout
        while True:
            self._let_go_on()
            left = deadline - time.monotonic()
            batch = self._replay.next_batch(max(0.0, min(PATIENCE, left)))
            if batch is not None or left <= 0.0:
                return batch

    def normalizer(self, batch: ReplayBatch) -> float:
        return batch.largest_weight

    def learn(self, batch: ReplayBatch | None, normalizer: float, reduce: Reduce) -> dict[str, Tensor]:
        moments, self._moments = self._moments, []
        self.algorithm.merge_moments(moments, reduce)
        if batch is None:
            return self.algorithm.step(None, None, normalizer, reduce)[1]
        try:
            items: Any = batch.items
            priorities, terms = self.algorithm.step(items, batch.weights, normalizer, reduce)
        except BaseException:
            self._replay.discard(batch)
            raise
        self._replay.update(batch, priorities)
        return terms

    def allows_update(self, batch: ReplayBatch | None) -> bool:
        """The first learner keeps to `minimum` and `samplesPerInsert`, for all."""
        return self._first and batch is not None

    def start(self) -> None:
        if not self._first:
            self._follower.start()

    def share(self, rank: int, size: int) -> None:
        self._replay.set_share(rank, size)

    def experiences(self) -> list[Experience]:
        news = self._reports.take()
        self._moments += [one.moments for one in news]
        return [Experience(*one[:5]) for one in news]

    def metrics(self) -> dict[str, float | None]:
        return self._others.total(self._replay.stats()).metrics()

    def replay(self) -> ReplayStatus:
        return self._others.total(self._replay.stats()).status()

    def warnings(self) -> tuple[Warning, ...]:
        failed = {name: failure for name, failure in self._failures.copy().items() if failure}
        if not failed:
            return ()
        name, failure = min(failed.items())
        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        return (Warning(reason="ShardNotSaved", message=f"the shard of {name}{more}: {failure}"),)

    def tend(self, now: float) -> None:
        self._let_go_on()
        if self._kept is not None:
            self._kept.tend(now)

    def finish(self) -> None:
        self._reports.finish()
        if self._kept is not None:
            self._kept.shard.set_limit(None)

    def close(self) -> None:
        self._follower.stop()
        if self._kept is not None:
            self._kept.close()
        self._replay.close()

    def get_state(self) -> dict[str, Any]:
        return {
            "replay": self._replay.get_state(),
            "reports": self._reports.get_state(),
            "others": self._others.get_state(),
            "moments": list(self._moments),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        self._replay.set_state(state["replay"])
        self._reports.set_state(state["reports"])
        self._others.set_state(state["others"])
        self._moments = list(state["moments"])

    def _let_go_on(self) -> None:
        """Those who wait and may insert more."""
        self._reports.release()
        if self._kept is not None:
            self._announce(self._pod, self._kept.describe(self._endpoint()))
            self._kept.shard.set_limit(self._replay.insert_limit(self._pod))

    def _announce(self, name: str, shard: dict[str, Any], lived: bool = False) -> None:
        description = dict(shard)
        self._failures[name] = description.pop("failure", None)
        self._replay.announce(name, now=time.monotonic(), served_before=lived, **description)

    def _dial(self, url: str) -> ShardPeer:
        if self._kept is not None and url == self._endpoint().url:
            return LocalPeer(self._kept.shard)
        return self._endpoint().dial(url)


def make_actor(settings: Settings, context: Context, spaces: Spaces) -> tuple[Actor, Tensor]:
    """What acts in a sampler, and the flat parameters with which it does."""
    network, normalize = context.job.spec.network, context.job.spec.environment.normalize
    if isinstance(settings, DqnApex):
        q_network, greedy = build_q_network(network, *spaces, dueling=settings.dueling, normalize=normalize)
        return DqnActor(q_network, greedy, settings), flatten_parameters(q_network)
    actor_critic, actions = build_deterministic(network, *spaces, normalize=normalize)
    return DdpgActor(actor_critic, actions, settings), flatten_parameters(actor_critic)


def _make_learner(
    settings: Settings, context: Context, spaces: Spaces, device: torch.device
) -> ApexLearner[Any]:
    network, normalize = context.job.spec.network, context.job.spec.environment.normalize
    if isinstance(settings, DqnApex):
        q_network, _ = build_q_network(network, *spaces, dueling=settings.dueling, normalize=normalize)
        return DqnLearner(q_network, settings, device)
    return DdpgLearner(build_deterministic(network, *spaces, normalize=normalize)[0], settings, device)
