"""The data path in which samplers compute gradients and learners hold slices of the parameters.

Used by A3C, A2C and PPO.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from gymnasium import spaces
from rltraining_api.algorithms import A2c, A3c, Ppo
from rltraining_api.contract import Warning
from rltraining_api.names import parse_pod_name, pod_name
from rltraining_api.status import ReplayStatus

from rltraining_trainer.algorithms.holder import ParameterHolder
from rltraining_trainer.algorithms.ppo import count_minibatches
from rltraining_trainer.algorithms.reduce import Reduce
from rltraining_trainer.algorithms.rollout_learner import exceeds_target_kl
from rltraining_trainer.dataflow import ModelServer, Source
from rltraining_trainer.dataflow.gradients import (
    GradientPush,
    GradientQueue,
    GradientReader,
    GradientServer,
    GradientsInStep,
    Patience,
    Reader,
    reduce_gradients,
)
from rltraining_trainer.group import GroupChanged
from rltraining_trainer.networks import ActorCritic, Distribution, build_actor_critic
from rltraining_trainer.roles.context import Context
from rltraining_trainer.roles.link import LARGE_GRADIENT_BYTES
from rltraining_trainer.roles.live_spec import LiveSpec
from rltraining_trainer.roles.progress import Experience
from rltraining_trainer.transport import Endpoint, Handler

Settings = A3c | A2c | Ppo

SPAN = 0.02
"""Seconds after which several holders whose samplers do not learn in step look at each other."""
HELD = 10
"""Deadlines for which a holder with gradients waits for one without: their samplers may have died between the two."""


class GradientFlow:
    """The learner's side: a ``Flow``.

    Several learners hold a slice each. They apply the gradients of the same samplers, in step, or each as they come. When one
    is lost, the others wait for it, and all go back to the newest checkpoint together: its slice would be of another time.
    """

    def __init__(
        self,
        context: Context,
        settings: Settings,
        spaces: tuple[spaces.Space, spaces.Space],
        models: ModelServer,
        device: torch.device,
        live: LiveSpec,
        endpoint: Callable[[], Endpoint],
    ) -> None:
        spec = self._spec = context.job.spec
        self._holders, self._index = len(context.learners), context.index
        self._job, self._settings, self._models = context.job.metadata.name, settings, models
        self._live, self._endpoint, self._device = live, endpoint, device
        self._stopping = context.stopping
        self.algorithm = self._make_algorithm(
            *build_actor_critic(spec.network, *spaces, normalize=spec.environment.normalize),
            spec.stop.environment_steps,
        )
        self._gradients = self._make_source()
        self._server = GradientServer(self._gradients, models, self._make_reader(spaces[0]))
        self._experiences: list[Experience] = []
        self._moments: list[torch.Tensor] = []  # moments of observations that are not merged yet
        self._epoch, self._complete = "", False
        self._held_since: float | None = None  # this holder is ready, and waits for another one

    @property
    def sends_large(self) -> bool:
        return self.algorithm.parameters.nbytes >= LARGE_GRADIENT_BYTES

    @property
    def services(self) -> Mapping[str, Handler]:
        return self._server.services

    @property
    def shares_whole(self) -> bool:
        return self._holders == 1

    def start(self) -> None:
        """Nothing: samplers come by themselves."""

    def next_batch(self, timeout: float) -> Sequence[GradientPush] | None:
        if not self._gradients.is_ready(timeout):
            return None
        if isinstance(self._gradients, GradientsInStep) and self._holders > 1:
            return ()  # which they are is agreed upon when all holders are ready
        return self._gradients.take() or None

    def normalizer(self, batch: Sequence[GradientPush]) -> float:
        """In step, with several holders: one more than the highest number of a sampler whose gradient is here."""
        return float(max(self._sources(), default=-1) + 1) if self._agrees else 0.0

    def allows_update(self, batch: Sequence[GradientPush] | None) -> bool:
        return batch is not None

    def holds(self, batch: Sequence[GradientPush] | None) -> bool:
        if not self._agrees or not self._complete:
            return False
        if batch is None:
            self._held_since = None
            return True
        now = time.monotonic()
        self._held_since = self._held_since or now
        if now - self._held_since > HELD * self._settings.aggregate.deadline_seconds:
            raise GroupChanged("another learner has had no gradients for long, and this one has")
        return False

    def learn(
        self, batch: Sequence[GradientPush] | None, normalizer: float, reduce: Reduce
    ) -> Mapping[str, float]:
        self._held_since = None
        updates = self.algorithm.updates
        if self._agrees:
            batch = self._agree(int(normalizer), reduce)
        terms = self._apply(batch or (), reduce)
        if self._holders > 1 and not self._agrees:
            terms = self._go_on(updates, time.monotonic() + SPAN) or terms
        return terms

    def collect(self, reduce: Reduce) -> None:
        if self._holders > 1 and self._complete:  # else it has what all went back to, and that is whole
            self.algorithm.collect(reduce)

    def part(self) -> None:
        self._complete, self._held_since = False, None
        self._gradients.restart("")
        self._gradients.release()

    def share(self, rank: int, size: int) -> None:
        self._complete = size == self._holders
        if not self._complete:
            return  # samplers wait until all are there
        if self._index == 0:
            self._epoch = self._next_epoch()
        self._gradients.restart(self._epoch)
        self._gradients.release()

    @property
    def common_updates(self) -> int:
        return self.algorithm.updates if self._index == 0 else -1  # whose checkpoints are those of all

    def get_common_state(self) -> dict[str, Any]:
        return {"epoch": self._next_epoch(), "learner": self.algorithm.get_state()}

    def set_common_state(self, state: dict[str, Any]) -> None:
        self._epoch = state["epoch"]
        self.algorithm.set_state(state["learner"])

    def experiences(self) -> list[Experience]:
        experiences, self._experiences = self._experiences, []
        return experiences

    def metrics(self) -> dict[str, float | None]:
        counts = self._gradients.counts()
        return {f"gradients/{name}": count for name, count in counts._asdict().items()}

    def replay(self) -> ReplayStatus | None:
        return None

    def warnings(self) -> tuple[Warning, ...]:
        return ()

    def tend(self, now: float) -> None:
        """The parameters are published: whoever waited for them gets them."""
        self._live.look(now)
        self._gradients.remaining = self.algorithm.remaining
        if isinstance(self._gradients, GradientsInStep):
            self._gradients.next_exchanges = self._exchanges
        self._gradients.release()

    def finish(self) -> None:
        self._server.finish()

    def close(self) -> None:
        """Nothing: it has begun nothing of its own."""

    def get_state(self) -> dict[str, Any]:
        return {"gradients": self._gradients.get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        self._gradients.set_state(state["gradients"])

    def _make_algorithm(
        self, network: ActorCritic, distribution: Distribution, total_steps: int | None
    ) -> ParameterHolder:
        return ParameterHolder(network, self._settings, total_steps, self._device, self._index, self._holders)

    def _make_reader(self, observation: spaces.Space) -> Reader[Any]:
        """Returns the reader of samplers' pushes."""
        return GradientReader(self.algorithm.parameters.numel())

    @property
    def _exchanges(self) -> int:
        """Number of pushes per rollout in mode Sync."""
        if not isinstance(self._settings, Ppo):
            return 1
        # Several holders would see a change of the number of samplers at different times.
        samplers = self._live.samplers if self._holders == 1 else self._spec.sampler.replicas
        minibatches = count_minibatches(self._spec, self._settings, samplers)
        return self._settings.epochs * minibatches

    @property
    def _agrees(self) -> bool:
        """Several holders agree on whose gradients make an update."""
        return self._holders > 1 and isinstance(self._gradients, GradientsInStep)

    def _make_source(self) -> GradientQueue[Any] | GradientsInStep[Any]:
        settings, live, job = self._settings, self._live, self._job
        aggregate = settings.aggregate
        if aggregate.mode == "Async":
            return GradientQueue(
                self._most_gradients,
                aggregate.deadline_seconds,
                lambda: self._models.version,
                capacity=aggregate.queue_capacity,
                max_staleness=aggregate.max_staleness,
            )
        patience = Patience(lambda: {pod_name(job, "sampler", index) for index in range(live.samplers)})
        return GradientsInStep(
            self._exchanges,
            patience,
            aggregate.deadline_seconds,
            count=aggregate.count,
            together=self._holders > 1,
        )

    def _most_gradients(self) -> int:
        """Returns the number of gradients per update in mode Async.

        It is at most the number of gradients that can exist: one per sampler and a full queue.
        """
        aggregate, samplers = self._settings.aggregate, self._live.samplers
        return min(aggregate.count or samplers, samplers + aggregate.queue_capacity)

    def _apply(self, pushes: Sequence[Any], reduce: Reduce) -> Mapping[str, float]:
        """Makes one update from these gradients. Returns their mean loss terms."""
        if not pushes:
            return {}
        # Apply the reduced gradient.
        gradient = reduce_gradients(
            [push.gradient for push in pushes],
            [push.weight for push in pushes],
            self._settings.aggregate.reduction,
        )
        self.algorithm.apply(
            gradient.to(self._device), sum(push.steps for push in pushes), reduce if self._agrees else None
        )

        # Record the experience, and end the iteration if the policy has changed too much.
        if self._index == 0:
            version = self._models.version
            self._experiences += [
                Experience(push.steps, push.returns, push.episodes, version - push.version) for push in pushes
            ]
        self._moments += [push.moments for push in pushes]
        terms = _mean_terms(pushes)
        if exceeds_target_kl(self._settings, terms):
            assert isinstance(self._gradients, GradientsInStep)
            self._gradients.end_iteration()

        # Merge statistics only between rollouts: all epochs use the statistics of the sampler.
        if self._gradients.begins_rollout:
            self.algorithm.merge_moments(self._moments)
            self._moments = []
        return terms

    def _go_on(self, published: int, until: float) -> Mapping[str, float]:
        """Apply what comes until then, without the other holders. ``published``: after how many updates the parameters
        were that are published; the last update is published by the caller."""
        terms: Mapping[str, float] = {}
        while (now := time.monotonic()) < until:
            if self.algorithm.updates != published:
                self._models.publish(self.algorithm.parameters)
                published = self.algorithm.updates
            self._gradients.release()
            if self._gradients.is_ready(until - now):
                terms = self._apply(self._gradients.take(), _nothing) or terms
        return terms

    def _agree(self, length: int, reduce: Reduce) -> Sequence[GradientPush]:
        """The gradients that every holder has its part of."""
        assert isinstance(self._gradients, GradientsInStep)
        here = torch.zeros(length, device=self._device)
        # What has come since the length was agreed upon is late.
        sources = {number: source for number, source in self._sources().items() if number < length}
        for number, source in sources.items():
            here[number] = _mark(source)
        reduce(here, 0.0)
        sums = here.tolist()
        common = [
            source for number, source in sources.items() if sums[number] == self._holders * _mark(source)
        ]
        pushes = self._gradients.take(common)
        if not common:
            self._gradients.end_iteration()  # nobody is here to go on with it, at least not at all holders
        return pushes

    def _sources(self) -> dict[int, Source]:
        """Of the gradients that are here, by the number of their sampler."""
        assert isinstance(self._gradients, GradientsInStep)
        members = {source: parse_pod_name(self._job, source.sender) for source in self._gradients.sources()}
        return {member[1]: source for source, member in members.items() if member is not None}

    def _next_epoch(self) -> str:
        return f"{self._endpoint().incarnation}.{self._models.version}"


def _mark(source: Source) -> float:
    """What tells the lives of a sampler apart, of which it sends one gradient for a place; LEARNERS_MAX of them add up exactly
    in float32."""
    return float(1 + zlib.crc32(source.incarnation.encode()) % 2**17)


def _nothing(gradient: torch.Tensor, count: float) -> float:
    raise AssertionError("holders that do not agree have nothing to sum")


def _mean_terms(pushes: Sequence[GradientPush]) -> dict[str, float]:
    if len(pushes) == 1:
        return pushes[0].terms
    total = sum(push.weight for push in pushes) or 1.0
    names = pushes[0].terms
    return {name: sum(push.terms.get(name, 0.0) * push.weight for push in pushes) / total for name in names}
