"""A sampler of A3C, A2C or PPO: it acts, and sends its rollouts, or their gradients, to those who hold the parameters."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import torch
from gymnasium.vector import VectorEnv
from rltraining_api.algorithms import A2c, A3c, Ppo
from torch import Tensor

from rltraining_trainer.algorithms.actor_critic import AdvantageActorCritic
from rltraining_trainer.algorithms.ppo import ProximalPolicyOptimization
from rltraining_trainer.algorithms.rollout_gradients import Gradient, RolloutGradients
from rltraining_trainer.algorithms.unrolls import Unroll, UnrollCollector
from rltraining_trainer.dataflow import NO_MOMENTS, flatten_parameters
from rltraining_trainer.environments import Faults, Stepper
from rltraining_trainer.networks import ActorCritic, Distribution, build_actor_critic
from rltraining_trainer.roles.context import Context
from rltraining_trainer.roles.link import LARGE_GRADIENT_BYTES, SEND_TIMEOUT, LearnerLink, is_large
from rltraining_trainer.roles.scrape import serve_sampler
from rltraining_trainer.roles.seeds import sampler_seed
from rltraining_trainer.transport import Endpoint, Stopped

Settings = A3c | A2c | Ppo

_LONGEST_WAIT = 86_400.0
"""Seconds for an answer: torch's timer counts milliseconds in 32 bits."""
UPDATE_TIMEOUT = 600.0
"""Seconds that all updates from one rollout may take at the learner, after which it is looked for again. A learner that is lost
is noticed at once, by its broken connection, unless its machine is lost with it."""
_NO_RETURNS = torch.zeros(0)


def sample_gradients(context: Context, settings: Settings, environments: VectorEnv) -> None:
    """Act, and send rollouts or their gradients, until the first holder says that the run is done."""
    spec = context.job.spec
    of = environments.single_observation_space, environments.single_action_space
    network, distribution = build_actor_critic(spec.network, *of, normalize=spec.environment.normalize)
    parameters = flatten_parameters(network)
    at_learner = spec.gradients_at == "Learner"
    endpoint = Endpoint(
        context.pod,
        context.token,
        threads=2,
        direct=parameters.nbytes >= LARGE_GRADIENT_BYTES * len(context.learners)
        or (at_learner and is_large(of[0])),
    )
    timeout = answer_timeout(settings) + (UPDATE_TIMEOUT if at_learner else 0.0)
    holders = Holders(context, endpoint, parameters.detach(), timeout)
    send = (
        Holders.send_rollout if at_learner else _gradient_sender(network, distribution, settings, parameters)
    )
    stepper = Stepper(environments, spec.environment.id, Faults.of(spec.environment))
    serve_sampler(context, lambda: holders.attached, stepper, holders.links)
    holders.attach()

    seed = sampler_seed(spec.seed, context.index, holders.version)
    torch.manual_seed(seed)
    collector = UnrollCollector(
        network,
        distribution,
        stepper,
        length=settings.rollout_length,
        discount=settings.discount,
        reward_clip=settings.reward_clip,
        reward_scale=settings.reward_scale,
        seed=seed,
    )
    while not holders.done:
        send(holders, collector.collect())
        if context.stopping.is_set():
            raise Stopped("told to end")


def _gradient_sender(
    network: ActorCritic, distribution: Distribution, settings: Settings, parameters: Tensor
) -> Callable[[Holders, Unroll], None]:
    """Computes the gradients of a rollout and sends them."""
    gradients: RolloutGradients
    if isinstance(settings, Ppo):
        gradients = ProximalPolicyOptimization(network, distribution, settings, parameters)
    else:
        gradients = AdvantageActorCritic(network, distribution, settings, parameters)
    send = send_in_step if settings.aggregate.mode == "Sync" else send_at_once
    return lambda holders, unroll: send(unroll, gradients, holders)


def answer_timeout(settings: Settings) -> float:
    """Seconds in which a holder answers: it may owe that for as long as an update waits for others."""
    return SEND_TIMEOUT + min(settings.aggregate.deadline_seconds, _LONGEST_WAIT)


def send_at_once(unroll: Unroll, gradients: RolloutGradients, holders: Holders) -> None:
    """The rollout's gradient, whatever other samplers do."""
    statistics = gradients.begin(unroll)
    if statistics is not None:
        gradients.share(statistics)
    holders.exchange(gradients.gradient(0), RolloutStats.of(unroll))


def send_in_step(unroll: Unroll, gradients: RolloutGradients, holders: Holders) -> None:
    """One gradient for each update in which the other samplers take part with theirs, from where all are now."""
    epoch, iteration, _ = holders.place
    statistics = gradients.begin(unroll, holders.remaining, holders.exchanges)
    if statistics is not None:
        gradients.share(holders.add_up(statistics))
    stats = RolloutStats.of(unroll)
    while not holders.done and holders.place[:2] == (epoch, iteration):
        position = holders.place[2]
        if holders.exchange(gradients.gradient(position), stats):
            stats = RolloutStats()  # counted once, with the first gradient that is used


class RolloutStats(NamedTuple):
    """What is behind the gradients of a rollout, and is counted once; nothing by default."""

    steps: int = 0
    """Environment steps."""
    episodes: int = 0
    """Episodes that ended in them."""
    returns: Tensor = _NO_RETURNS
    """``[K]`` undiscounted returns of ended episodes."""
    moments: Tensor = NO_MOMENTS
    """``[U, 1 + 2·d]`` of observations."""

    @classmethod
    def of(cls, unroll: Unroll) -> RolloutStats:
        steps, episodes = int(unroll["valid"].sum()), int(unroll["episodes"].sum())
        return cls(steps, episodes, unroll["episode_return"], unroll["moments"])


class Holders:
    """A sampler's way to all parameter holders, each of which has a slice of ``parameters`` ``[N]``.

    After each call all slices are of one place: never of the lives of two groups of holders.
    """

    def __init__(
        self, context: Context, endpoint: Endpoint, parameters: Tensor, timeout: float = SEND_TIMEOUT
    ) -> None:
        """``timeout``: seconds for one message."""
        count, size = len(context.learners), parameters.numel()
        self._endpoint = endpoint
        self._cuts = [slice(i * size // count, (i + 1) * size // count) for i in range(count)]
        self.links = [
            LearnerLink(context, url, endpoint, "push", parameters[cut], alone=count == 1, timeout=timeout)
            for url, cut in zip(context.learners, self._cuts, strict=True)
        ]

    @property
    def attached(self) -> bool:
        return all(link.attached.is_set() for link in self.links)

    @property
    def done(self) -> bool:
        return any(link.done for link in self.links)

    @property
    def version(self) -> int:
        """Of the first slice."""
        return self.links[0].version

    @property
    def place(self) -> tuple[str, int, int]:
        """(epoch, iteration, position) of the parameters: see ``dataflow.gradients``."""
        epoch, iteration, position = self.links[0].answer["place"]
        return epoch, iteration, position

    @property
    def exchanges(self) -> int:
        """Gradients of the present rollout."""
        return int(self.links[0].answer["exchanges"])

    @property
    def remaining(self) -> float:
        """What is left of the run, from 1 down to 0."""
        return float(self.links[0].answer["remaining"])

    def attach(self) -> None:
        """Find all holders, however long it takes, and get their parameters."""
        if len(self.links) > 1:
            self._endpoint.start()
        self._at_all(LearnerLink.attach)
        self._come_together()

    def exchange(self, gradient: Gradient, stats: RolloutStats) -> bool:
        """Send a gradient with what is behind it and not counted yet, and get newer parameters. Whether it was used."""
        place: Any = self.place
        for link, cut in zip(self.links, self._cuts, strict=True):
            link.send(
                place=place,
                gradient=gradient.values[cut],
                weight=gradient.weight,
                steps=stats.steps,
                episodes=stats.episodes,
                returns=stats.returns if link is self.links[0] else _NO_RETURNS,
                terms=gradient.terms,
                moments=stats.moments,
            )
        for link in self.links:
            link.settle()
        used = bool(self.links[0].answer["used"])
        self._come_together()
        return used

    def send_rollout(self, unroll: Unroll) -> None:
        """Send a rollout to the only holder, and get the parameters of the update that it is part of. One that comes too late
        is refused: it is of an older policy, and the next is of the newest."""
        (link,) = self.links
        link.send(place=self.place, unroll=dict(unroll))
        link.settle()

    def add_up(self, part: Tensor) -> Tensor:
        """The sum of ``part`` over all samplers of this iteration; ``part`` alone, if the holder is gone or further."""
        total = self.links[0].ask("sum", {"place": self.place, "part": part})
        return total if isinstance(total, Tensor) else part

    def _come_together(self) -> None:
        """A holder that was lost comes back with the others at an earlier time: take all slices anew until they agree."""
        while not self.done and len({link.answer["place"] for link in self.links}) > 1:
            self._at_all(LearnerLink.refresh)

    def _at_all(self, act: Callable[[LearnerLink], None]) -> None:
        """At once, so that no holder waits for one that another one holds back."""
        if len(self.links) == 1:
            act(self.links[0])
            return
        with ThreadPoolExecutor(len(self.links)) as threads:
            list(threads.map(act, self.links))
