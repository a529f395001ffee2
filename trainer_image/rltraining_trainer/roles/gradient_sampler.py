"""The sampler of A3C, A2C and PPO, which sends rollouts or gradients to parameter holders."""

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
"""Maximum timeout of an answer in seconds: torch's timer counts milliseconds in 32 bits."""
UPDATE_TIMEOUT = 600.0
"""Seconds that all updates from one rollout may take at the learner before the sampler reconnects.
It only matters if the learner's machine is lost: the loss of its process breaks the connection."""
_NO_RETURNS = torch.zeros(0)


def sample_gradients(context: Context, settings: Settings, environments: VectorEnv) -> None:
    """Acts and sends rollouts or gradients until the first holder reports the end of the run."""
    # Build the network and the connections to the holders of its parameters.
    spec = context.job.spec
    spaces = environments.single_observation_space, environments.single_action_space
    network, distribution = build_actor_critic(spec.network, *spaces, normalize=spec.environment.normalize)
    parameters = flatten_parameters(network)
    at_learner = spec.gradients_at == "Learner"
    endpoint = Endpoint(
        context.pod,
        context.token,
        threads=2,
        direct=parameters.nbytes >= LARGE_GRADIENT_BYTES * len(context.learners)
        or (at_learner and is_large(spaces[0])),
    )
    timeout = answer_timeout(settings) + (UPDATE_TIMEOUT if at_learner else 0.0)
    holders = Holders(context, endpoint, parameters.detach(), timeout)
    send = (
        Holders.send_rollout if at_learner else _gradient_sender(network, distribution, settings, parameters)
    )

    # Serve probes and metrics, then get the first parameters.
    stepper = Stepper(environments, spec.environment.id, Faults.of(spec.environment))
    serve_sampler(context, lambda: holders.attached, stepper, holders.links)
    holders.attach()

    # Collect rollouts and send them until the run is done.
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
            raise Stopped("asked to end")


def _gradient_sender(
    network: ActorCritic, distribution: Distribution, settings: Settings, parameters: Tensor
) -> Callable[[Holders, Unroll], None]:
    """Returns a function that computes the gradients of a rollout and sends them."""
    gradients: RolloutGradients
    if isinstance(settings, Ppo):
        gradients = ProximalPolicyOptimization(network, distribution, settings, parameters)
    else:
        gradients = AdvantageActorCritic(network, distribution, settings, parameters)
    send = send_in_step if settings.aggregate.mode == "Sync" else send_at_once
    return lambda holders, unroll: send(unroll, gradients, holders)


def answer_timeout(settings: Settings) -> float:
    """Returns the timeout of an answer in seconds, which includes waiting for other samplers."""
    return SEND_TIMEOUT + min(settings.aggregate.deadline_seconds, _LONGEST_WAIT)


def send_at_once(unroll: Unroll, gradients: RolloutGradients, holders: Holders) -> None:
    """Sends the rollout's gradient independently of other samplers (mode Async)."""
    statistics = gradients.begin(unroll)
    if statistics is not None:
        gradients.share(statistics)
    holders.exchange(gradients.gradient(0), RolloutStats.of(unroll))


def send_in_step(unroll: Unroll, gradients: RolloutGradients, holders: Holders) -> None:
    """Sends one gradient for each update that all samplers make together (mode Sync)."""
    epoch, iteration, _ = holders.place
    statistics = gradients.begin(unroll, holders.remaining, holders.exchanges)
    if statistics is not None:
        gradients.share(holders.add_up(statistics))
    stats = RolloutStats.of(unroll)
    while not holders.done and holders.place[:2] == (epoch, iteration):
        position = holders.place[2]
        if holders.exchange(gradients.gradient(position), stats):
            stats = RolloutStats()  # sent only with the first gradient that is used


class RolloutStats(NamedTuple):
    """The statistics of a rollout, which are sent once. Empty by default."""

    steps: int = 0
    """Environment steps."""
    episodes: int = 0
    """Episodes that ended."""
    returns: Tensor = _NO_RETURNS
    """``[K]`` undiscounted returns of ended episodes."""
    moments: Tensor = NO_MOMENTS
    """``[U, 1 + 2·d]`` of observations."""

    @classmethod
    def of(cls, unroll: Unroll) -> RolloutStats:
        steps, episodes = int(unroll["valid"].sum()), int(unroll["episodes"].sum())
        return cls(steps, episodes, unroll["episode_return"], unroll["moments"])


class Holders:
    """A sampler's connections to all parameter holders, each of which has a slice of the
    parameters.

    After each call the slices in ``parameters`` ``[N]`` belong to one version. They are never mixed
    from two groups of holders.
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
        """Version of the first slice."""
        return self.links[0].version

    @property
    def place(self) -> tuple[str, int, int]:
        """(epoch, iteration, position) of the parameters (see ``dataflow.gradients``)."""
        epoch, iteration, position = self.links[0].answer["place"]
        return epoch, iteration, position

    @property
    def exchanges(self) -> int:
        """Number of gradients to send for the current rollout."""
        return int(self.links[0].answer["exchanges"])

    @property
    def remaining(self) -> float:
        """Remaining fraction of the run, from 1 down to 0."""
        return float(self.links[0].answer["remaining"])

    def attach(self) -> None:
        """Connects to all holders, retrying without a limit, and gets their parameters."""
        if len(self.links) > 1:
            self._endpoint.start()
        self._at_all(LearnerLink.attach)
        self._come_together()

    def exchange(self, gradient: Gradient, stats: RolloutStats) -> bool:
        """Sends a gradient with statistics not sent before, and gets newer parameters.

        Returns whether the gradient was used.
        """
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
        """Sends a rollout to the only holder and gets the parameters after the updates from it.

        The holder rejects a late rollout, since an older policy made it, and still answers with the
        latest parameters.
        """
        (link,) = self.links
        link.send(place=self.place, unroll=dict(unroll))
        link.settle()

    def add_up(self, part: Tensor) -> Tensor:
        """Returns the sum of ``part`` over all samplers of this iteration.

        Returns ``part`` itself if the first holder is lost or has moved on.
        """
        total = self.links[0].ask("sum", {"place": self.place, "part": part})
        return total if isinstance(total, Tensor) else part

    def _come_together(self) -> None:
        """Fetches all slices until they belong to one version, after holders have rolled back."""
        while not self.done and len({link.answer["place"] for link in self.links}) > 1:
            self._at_all(LearnerLink.refresh)

    def _at_all(self, act: Callable[[LearnerLink], None]) -> None:
        """Runs ``act`` on all links in parallel, since holders may wait for each other."""
        if len(self.links) == 1:
            act(self.links[0])
            return
        with ThreadPoolExecutor(len(self.links)) as threads:
            list(threads.map(act, self.links))
