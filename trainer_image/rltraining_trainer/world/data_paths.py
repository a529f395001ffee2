"""The data paths of a world: `replay`, `trajectories`, `gradients` and `rollouts`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Literal, TypeVar
from weakref import WeakSet

from gymnasium import spaces
from pydantic import ValidationError
from rltraining_api.algorithms import Aggregate
from rltraining_api.algorithms.replay import Replay as ReplaySettings
from rltraining_api.explain import explain
from rltraining_api.job import JobSpec
from rltraining_api.names import Role

from rltraining_trainer.dataflow.gradients import GradientReader, Reader, UnrollReader
from rltraining_trainer.dataflow.gradients.accounts import P
from rltraining_trainer.dataflow.reduce import Reduce
from rltraining_trainer.dataflow.replay import Column
from rltraining_trainer.environments import Stepper, StepperStats
from rltraining_trainer.environments.seeded_batch import make_seeded_environments
from rltraining_trainer.networks import ActorCritic, Distribution
from rltraining_trainer.roles.context import Context
from rltraining_trainer.roles.spec_watcher import SpecWatcher
from rltraining_trainer.transport import Endpoint, Payload
from rltraining_trainer.world.blocks import KeptReplay, LearnerBlocks, SamplerBlocks
from rltraining_trainer.world.data_path import DataPath, SamplerPath
from rltraining_trainer.world.gradients import LearnerGradients, SamplerGradients
from rltraining_trainer.world.members import Member, Members
from rltraining_trainer.world.replay import LearnerReplay, Replay, SamplerReplay
from rltraining_trainer.world.reporter import Reporter
from rltraining_trainer.world.run import Run
from rltraining_trainer.world.session import LARGE_GRADIENT_BYTES, Connections, is_large, size_of
from rltraining_trainer.world.shards import LocalShard, keep_shard
from rltraining_trainer.world.trajectories import (
    LearnerTrajectories,
    SamplerTrajectories,
    Trajectories,
)

LP = TypeVar("LP", bound=DataPath)
SP = TypeVar("SP", bound=SamplerPath)


class DataPaths:
    """The part of a `World` that makes its data paths."""

    name: str
    index: int
    learners: int
    spec: JobSpec
    settings: Any
    stopping: threading.Event
    _context: Context
    _live: SpecWatcher
    _endpoint: Endpoint
    _connections: Connections
    _reporter: Reporter
    _run: Run | None
    _path: SamplerPath | None
    _names: set[str]
    _shards: list[LocalShard]
    _stats: list[StepperStats]
    _steppers: WeakSet[Stepper]
    _kept: list[Stepper]

    @cached_property
    def spaces(self) -> tuple[spaces.Space, spaces.Space]:
        raise NotImplementedError

    def members(self, role: Role) -> Members:
        raise NotImplementedError

    def start(self) -> int:
        raise NotImplementedError

    def _first(self) -> Member | None:
        raise NotImplementedError

    def replay(
        self,
        settings: ReplaySettings | None = None,
        *,
        batch_size: int,
        columns: Mapping[str, Column] | None = None,
        capacity: int = 1_000_000,
        minimum: int = 1,
        samples_per_insert: float | None = None,
        priority_exponent: float = 0.6,
        importance_exponent: float = 0.4,
        kind: Literal["Prioritized", "Uniform"] = "Prioritized",
    ) -> Replay:
        """Returns the job's distributed replay (see `Replay`).

        Call this with the same arguments in ``learner(world)`` before `run`, and in
        ``sampler(world)`` before `start`.

        Args:
            settings: all settings of a replay, instead of the arguments after ``columns``.
            batch_size: number of items in a batch, of all learners together.
            columns: shapes and types of an item. Required if learner 0 or separate pods keep the replay.
            capacity: number of items in all samplers together. Each sampler has an equal part.
            minimum: number of insertions before the first sample.
            samples_per_insert: how often an item is sampled on average. Learner and samplers wait
                for each other to keep this ratio. None: neither waits.
            priority_exponent: α of the probabilities p^α / Σ p^α.
            importance_exponent: β of the weights.
            kind: Uniform samples all items with the same probability.

        Raises:
            ValueError: an argument is out of its range.
            BadConfiguration: there is not enough memory.
        """
        if batch_size < 1:
            raise ValueError(f"world.replay(): batch_size: must be at least 1, got {batch_size}")
        try:
            settings = settings or ReplaySettings(
                capacity=capacity,
                minimum=minimum,
                samples_per_insert=samples_per_insert,
                priority_exponent=priority_exponent,
                importance_exponent=importance_exponent,
                kind=kind,
            )
        except ValidationError as error:
            problems = "; ".join(explain(error, ReplaySettings)).replace("replay.", "")
            raise ValueError(f"world.replay(): {problems}") from None
        if self._run is None:
            return self._sampler_replay(settings)
        return self._learner_replay(settings, batch_size, columns)

    def keep_replay(self, settings: ReplaySettings, columns: Mapping[str, Column]) -> None:
        """In a replay pod: keeps a shard of the replay until the run is done, then raises Stopped.

        Raises BadConfiguration if there is not enough memory.
        """
        self._endpoint.direct = is_large(self.spaces[0])
        local = self._make_shard(settings, columns, len(self._context.replays))
        self.start()
        keep_shard(local, self._connections)

    def trajectories(self, capacity: int = 1, *, max_lag: int | None = None) -> Trajectories:
        """Returns a bounded queue from samplers to learners (see `Trajectories`).

        Each learner has a queue for its share of the samplers. Call this in ``learner(world)``
        before `run`, and in ``sampler(world)`` before `start`.

        Args:
            capacity: number of items that are accepted before they are used. A full queue blocks
                the samplers. With 0 an item is accepted when the learner requests the next item.
            max_lag: largest policy lag in versions, at least 1: older items count as dropped. At most ``max_lag / 2``
                times the ``count`` of `Trajectories.get` items are under way, that is in the making or queued. The
                other samplers wait, and then receive the newest parameters. None: no limit.
        """
        large = is_large(self.spaces[0])
        if self._run is None:
            return self._sampler_path("trajectories", SamplerTrajectories(self._connections), large)
        path = LearnerTrajectories(capacity, self._run.models, self.stopping, max_lag=max_lag, large=large)
        return self._learner_path("trajectories", path)

    def gradients(
        self,
        aggregate: Aggregate,
        size: int = 0,
        *,
        exchanges: Callable[[], int] = lambda: 1,
        remaining: Callable[[], float] = lambda: 1.0,
        gather_state: Callable[[Reduce], None] = lambda reduce: None,
    ) -> Any:
        """Returns the path of samplers' gradients to their learner (see `LearnerGradients` and `SamplerGradients`).

        Call this in ``learner(world)`` before `run`, and in ``sampler(world)`` before `start`.

        Args:
            aggregate: how gradients are combined. In mode Async with several learners each learner receives a slice.
            size: number of parameters of this learner.
            exchanges: returns the number of gradients per rollout in mode Sync.
            remaining: returns the remaining fraction of the run, for the samplers' schedules.
            gather_state: gathers the state of all slices before a checkpoint.
        """
        large = size * 4 >= LARGE_GRADIENT_BYTES
        if self._run is None:
            path = SamplerGradients(self._connections, aggregate, updates_at_learner=False)
            return self._sampler_path("gradients", path, large)
        reader = GradientReader(size)
        return self._learner_gradients(
            "gradients", aggregate, reader, exchanges, remaining, gather_state, large=large
        )

    def rollouts(
        self,
        aggregate: Aggregate,
        network: ActorCritic | None = None,
        distribution: Distribution | None = None,
        *,
        remaining: Callable[[], float] = lambda: 1.0,
    ) -> Any:
        """Returns the path of samplers' rollouts to their learner, which answers each with updated parameters.

        Call this in ``learner(world)`` before `run`, and in ``sampler(world)`` before `start`.

        Args:
            aggregate: how rollouts are combined into updates.
            network: in a learner, defines the shapes of a rollout.
            distribution: as ``network``.
            remaining: see `gradients`.
        """
        large = is_large(self.spaces[0])
        if self._run is None:
            path = SamplerGradients(self._connections, aggregate, updates_at_learner=True)
            return self._sampler_path("rollouts", path, large)
        assert network is not None
        assert distribution is not None
        reader = self.unroll_reader(network, distribution, self.settings.rollout_length)
        return self._learner_gradients("unrolls", aggregate, reader, remaining=remaining, large=large)

    def blocks(
        self,
        read: Callable[[Payload], dict[str, Any]] | None = None,
        lag: int = 0,
        replay: KeptReplay | None = None,
    ) -> Any:
        """Returns the path of `spec.reproducible` (see `LearnerBlocks` and `SamplerBlocks`).

        Call this in ``learner(world)`` before `run`, and in ``sampler(world)`` before `start`.

        Args:
            read: in the learner: checks the rollout of a message (see `LearnerBlocks`).
            lag: in the learner: number of updates that the parameters of a rollout lack, 0 or 1.
            replay: in the learner: the replay that the learner fills with the rollouts, if any.
        """
        reproducible, large = self.spec.reproducible, is_large(self.spaces[0])
        assert reproducible is not None
        if self._run is None:
            return self._sampler_path(
                "blocks", SamplerBlocks(self._connections, reproducible.take_over_seconds), large
            )
        assert read is not None
        path = LearnerBlocks(
            reproducible,
            read,
            self._run.models,
            lambda: [member.name for member in self.members("sampler")],
            lag,
            self._context.output,
            self.stopping,
            large=large,
            replay=replay,
        )
        return self._learner_path("blocks", path)

    def seeded_environments(self) -> Stepper:
        """Returns ``numEnvs`` environments with a seed for each episode, for a block. May be called after `start`.

        Raises BadConfiguration if the environment does not support such seeds.
        """
        environments = make_seeded_environments(self.spec.environment, self.spec.environment.num_envs)
        stepper = Stepper.of(self.spec, environments, self.spaces)
        self._stats.append(stepper.stats)
        self._steppers.add(stepper)
        self._kept.append(stepper)
        return stepper

    def unroll_reader(self, network: ActorCritic, distribution: Distribution, length: int) -> UnrollReader:
        """Returns a reader that validates unrolls of ``length`` steps. Network and distribution define their shapes."""
        normalizer = network.normalizer
        return UnrollReader(
            length=length,
            observation_shape=self.spaces[0].shape or (),
            action_shape=distribution.action_shape,
            state_sizes=[part.shape[1] for part in network.initial_state(1)],
            moments_size=0 if normalizer is None else 1 + 2 * normalizer.mean.numel(),
        )

    def _learner_path(self, name: str, path: LP) -> LP:
        assert self._run is not None
        self._run.add_path(name, path)
        return path

    def _sampler_path(self, name: str, path: SP, large: bool) -> SP:
        # Otherwise this path would receive no parameters, or its items would be dropped as repetitions of the other path's.
        if self._connections.started:
            raise RuntimeError(f"call world.{name}() before world.start()")
        if name in self._names:
            raise RuntimeError(f"world.{name}() was called twice: call it once and keep the result")
        self._names.add(name)
        self._path = path
        self._endpoint.direct |= large
        return path

    def _learner_gradients(
        self,
        name: str,
        aggregate: Aggregate,
        reader: Reader[P],
        exchanges: Callable[[], int] = lambda: 1,
        remaining: Callable[[], float] = lambda: 1.0,
        gather_state: Callable[[Reduce], None] = lambda reduce: None,
        *,
        large: bool,
    ) -> LearnerGradients[P]:
        assert self._run is not None
        sliced = aggregate.mode == "Async" and self.learners > 1

        def samplers() -> list[str]:
            everyone = self.members("sampler")
            mine = everyone if sliced else everyone.part(self.index, self.learners)
            return [member.name for member in mine]

        path = LearnerGradients(
            aggregate,
            reader,
            name=name,
            models=self._run.models,
            index=self.index,
            learners=self.learners,
            samplers=samplers,
            exchanges=exchanges,
            remaining=remaining,
            incarnation=self._endpoint.incarnation,
            gather_state=gather_state,
            large=large,
            stopping=self.stopping,
        )
        return self._learner_path(name, path)

    def _sampler_replay(self, settings: ReplaySettings) -> SamplerReplay:
        context = self._context
        keepers = {"Samplers": (), "Learner": context.learners[:1], "Dedicated": context.replays}
        among = keepers[settings.placement]
        return self._sampler_path(
            "replay",
            SamplerReplay(
                self._connections,
                self._reporter,
                among[self.index % len(among)] if among else None,
                lambda columns: self._make_shard(settings, columns, max(1, len(self.members("sampler")))),
            ),
            is_large(self.spaces[0]),
        )

    def _learner_replay(
        self, settings: ReplaySettings, batch_size: int, columns: Mapping[str, Column] | None
    ) -> LearnerReplay:
        run = self._run
        assert run is not None
        local = None
        if self.index == 0 and settings.placement == "Learner":
            assert columns is not None, "the learner keeps the replay: pass columns"
            local = self._make_shard(settings, columns, 1)
        item_bytes = sum(column.nbytes for column in columns.values()) if columns else 0
        path = LearnerReplay(
            settings,
            batch_size,
            name=self.name,
            seed=self.spec.seed + self.index,
            item_bytes=item_bytes or 2 * size_of(self.spaces[0]),
            endpoint=self._endpoint,
            reports=run.paths.reports,
            stopping=self.stopping,
            first=self._first(),
            local=local,
            large=is_large(self.spaces[0]),
        )
        return self._learner_path("replay", path)

    def _make_shard(self, settings: ReplaySettings, columns: Mapping[str, Column], shards: int) -> LocalShard:
        local = LocalShard(self._context, self._live, settings, columns, shards, self._endpoint)
        self._shards.append(local)
        return local
