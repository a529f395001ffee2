"""Unrolls: samplers push them into a bounded queue, the learner improves the policy with each. Used by IMPALA."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from rltraining_api.algorithms import Impala
from rltraining_api.contract import Warning
from rltraining_api.status import ReplayStatus
from torch import Tensor

from rltraining_trainer.algorithms.impala import ImpalaLearner
from rltraining_trainer.algorithms.reduce import Reduce
from rltraining_trainer.algorithms.unrolls import UnrollCollector
from rltraining_trainer.dataflow import (
    ModelServer,
    Trajectory,
    TrajectoryQueue,
    TrajectoryServer,
    flatten_parameters,
)
from rltraining_trainer.dataflow.reports import Lived, SamplerReports
from rltraining_trainer.environments import Faults, Stepper
from rltraining_trainer.networks import build_actor_critic
from rltraining_trainer.roles.context import Context
from rltraining_trainer.roles.discards import Discards
from rltraining_trainer.roles.flow import WholeState
from rltraining_trainer.roles.followers import Follower
from rltraining_trainer.roles.link import LearnerLink, is_large
from rltraining_trainer.roles.progress import Experience
from rltraining_trainer.roles.scrape import serve_sampler
from rltraining_trainer.roles.seeds import sampler_seed
from rltraining_trainer.transport import Endpoint, Handler, Stopped


class TrajectoryFlow(WholeState[ImpalaLearner]):
    """The learner's side: a ``Flow``."""

    def __init__(
        self,
        context: Context,
        settings: Impala,
        spaces: tuple[spaces.Space, spaces.Space],
        models: ModelServer,
        device: torch.device,
        endpoint: Callable[[], Endpoint],
        discards: Discards,
    ) -> None:
        spec = context.job.spec
        network, distribution = build_actor_critic(
            spec.network, *spaces, normalize=spec.environment.normalize
        )
        self.algorithm = ImpalaLearner(network, distribution, settings, spec.stop.environment_steps, device)
        self._settings, self._models = settings, models
        self._large = is_large(spaces[0])
        self._queue: TrajectoryQueue[Trajectory] = TrajectoryQueue(settings.queue_capacity)
        self._server = TrajectoryServer(self._queue, models)
        self._batch: list[Trajectory] = []
        self._experiences: list[Experience] = []
        self._first = context.index == 0
        self._reports = SamplerReports(models)  # of the other learners
        self._lived = Lived()  # of this learner, if another one keeps the record
        self._follower = Follower(
            context,
            endpoint,
            "report",
            lambda: self._lived.take() | discards.fields(),
            lambda answer: None,
        )

    @property
    def sends_large(self) -> bool:
        return self._large

    @property
    def services(self) -> Mapping[str, Handler]:
        others = {"report": self._reports.report} if self._first else {}
        return {**self._server.services, **others}

    def start(self) -> None:
        if not self._first:
            self._follower.start()

    def next_batch(self, timeout: float) -> list[Trajectory] | None:
        """As many unrolls as one update uses; those that have come are kept when the others do not come in time."""
        deadline = time.monotonic() + timeout
        while len(self._batch) < self._settings.batch_unrolls:
            trajectory = self._queue.get(max(0.0, deadline - time.monotonic()))
            if trajectory is None:
                return None
            self._batch.append(trajectory)
        batch, self._batch = self._batch, []
        lived = [_experience(trajectory, self._models.version) for trajectory in batch]
        if self._first:
            self._experiences += lived
        else:
            for experience in lived:
                self._lived.add(experience.steps, experience.episodes, experience.returns)
        return batch

    def normalizer(self, batch: list[Trajectory]) -> float:
        return 1.0

    def learn(self, batch: list[Trajectory] | None, normalizer: float, reduce: Reduce) -> dict[str, Tensor]:
        unrolls: list[Any] = [trajectory.unroll for trajectory in batch or ()]
        return self.algorithm.step(unrolls, reduce)

    def allows_update(self, batch: list[Trajectory] | None) -> bool:
        return batch is not None

    def share(self, rank: int, size: int) -> None:
        """Nothing: each learner uses what its samplers send."""

    def experiences(self) -> list[Experience]:
        experiences, self._experiences = self._experiences, []
        return experiences + [Experience(*news[:5]) for news in self._reports.take()]

    def metrics(self) -> dict[str, float | None]:
        return self._queue.counts().metrics()

    def replay(self) -> ReplayStatus | None:
        return None

    def warnings(self) -> tuple[Warning, ...]:
        return ()

    def tend(self, now: float) -> None:
        """Nothing: the queue looks after itself."""

    def finish(self) -> None:
        self._server.finish()

    def close(self) -> None:
        self._follower.stop()

    def get_state(self) -> dict[str, Any]:
        return {"queue": self._queue.get_state(), "reports": self._reports.get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        self._queue.set_state(state["queue"])
        self._reports.set_state(state["reports"])


def sample_trajectories(context: Context, settings: Impala, environments: VectorEnv) -> None:
    """The sampler's side: collect unrolls and push them, until the learner says that the run is done."""
    spec = context.job.spec
    spaces = environments.single_observation_space, environments.single_action_space
    network, distribution = build_actor_critic(spec.network, *spaces, normalize=spec.environment.normalize)
    endpoint = Endpoint(context.pod, context.token, threads=2, direct=is_large(spaces[0]))
    learner = LearnerLink(
        context, context.own_learner, endpoint, "push", flatten_parameters(network), alone=True
    )
    stepper = Stepper(environments, spec.environment.id, Faults.of(spec.environment))
    serve_sampler(context, learner.attached.is_set, stepper, [learner])

    learner.attach()
    seed = sampler_seed(spec.seed, context.index, learner.version)
    torch.manual_seed(seed)
    collector = UnrollCollector(
        network,
        distribution,
        stepper,
        length=settings.unroll_length,
        discount=settings.discount,
        reward_clip=settings.reward_clip,
        reward_scale=settings.reward_scale,
        seed=seed,
    )
    while not learner.done:
        learner.send(unroll=dict(collector.collect()))
        if context.stopping.is_set():  # a learner that answers at once is never waited for, which would tell
            raise Stopped("asked to end")


def _experience(trajectory: Trajectory, version: int) -> Experience:
    unroll = trajectory.unroll
    returns = unroll["episode_return"]
    return Experience(
        int(unroll["valid"].sum()), returns, int(unroll["episodes"].sum()), version - trajectory.version
    )
