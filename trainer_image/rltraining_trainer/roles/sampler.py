"""The sampler: acts with the newest parameters it has, and pushes what happened to the learner.

It outlives every learner: when one is lost it waits for the next, takes that one's parameters and goes on where its
environments are.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

import numpy as np
import torch
from rltraining_api.contract import ExitCode

from rltraining_trainer.algorithms.unrolls import Unroll, UnrollCollector
from rltraining_trainer.dataflow import flatten_parameters, load_flat
from rltraining_trainer.environments import Stepper, make_environments
from rltraining_trainer.networks import build_actor_critic
from rltraining_trainer.roles.context import Context
from rltraining_trainer.transport import (
    Backoff,
    Call,
    Endpoint,
    MemberServer,
    Peer,
    PeerLost,
    Stopped,
    discover,
)

_LOG = logging.getLogger(__name__)

PUSH_TIMEOUT = 60.0
"""Seconds for one push: it includes the time for which a busy learner holds us back."""


def run_sampler(context: Context) -> int:
    """Sample until the learner says that the run is done. Returns the exit code."""
    spec = context.job.spec
    settings = spec.algorithm.impala
    assert settings is not None, "validation lets no other algorithm through"
    environments = make_environments(spec.environment, spec.environment.num_envs)
    network, distribution = build_actor_critic(
        spec.network, environments.single_observation_space, environments.single_action_space
    )
    learner = LearnerLink(context, flatten_parameters(network))
    server = MemberServer(context.http_port, context.token, ready=learner.attached.is_set, documents={})
    server.start()

    learner.attach()
    seed = _seed(spec.seed, context.index, learner.version)
    torch.manual_seed(seed)
    collector = UnrollCollector(
        network,
        distribution,
        Stepper(environments, spec.environment.id),
        length=settings.unroll_length,
        discount=settings.discount,
        reward_clip=settings.reward_clip,
        reward_scale=settings.reward_scale,
        seed=seed,
    )
    while not learner.done:
        learner.push(collector.collect())
        if context.stopping.is_set():  # a learner that answers at once is never waited for, which would tell
            raise Stopped("told to end")
    environments.close()
    return ExitCode.DONE


class LearnerLink:
    """The way to the learner and back: unrolls go there, parameters come into ``parameters``, whoever dies meanwhile."""

    def __init__(self, context: Context, parameters: torch.Tensor) -> None:
        self.version = 0
        self.done = False
        self.attached = threading.Event()
        self._context = context
        self._parameters = parameters
        self._endpoint = Endpoint(context.pod, context.token, threads=2)
        self._backoff = Backoff()
        self._peer: Peer | None = None
        self._sequence = 0
        self._pending: tuple[dict[str, Any], Call] | None = None  # what is on its way

    def push(self, unroll: Unroll) -> None:
        """Send an unroll, collected with the parameters as they are. Returns when the one before has been answered, so that
        one is always on its way while the next is collected.

        What was on its way when the learner was lost is sent again, to the next one; the learner knows it by its number, so
        it is never used twice.
        """
        self._sequence += 1
        message = {
            "incarnation": self._endpoint.incarnation,
            "sequence": self._sequence,
            "version": self.version,
            "unroll": dict(unroll),
        }
        self.settle()
        self._send(message)

    def settle(self) -> None:
        """Wait for the answer to what is on its way, and take its parameters."""
        while self._pending is not None and not self.done:
            message, call = self._pending
            if self._take(call):
                self._pending = None
            else:
                self.attach()
                self._send(message)

    def attach(self) -> None:
        """Find the learner, however long it takes, and take its parameters."""
        self.attached.clear()
        stopping, (url, *_) = self._context.stopping, self._context.learners
        while True:
            try:
                self._endpoint.stop()
                self._endpoint.start()
                self._peer = self._endpoint.dial(discover(url, self._context.token, stopping=stopping)["url"])
            except PeerLost as error:
                _LOG.debug("no learner yet: %s", error)
            else:
                self.version = 0  # the versions of another incarnation of the learner may be other parameters
                if self._take(self._peer.call("pull", {"version": 0})):
                    break
            self._backoff.wait(stopping)
        self._backoff.reset()
        self.attached.set()
        _LOG.info("attached to the learner at version %d", self.version)

    def _send(self, message: dict[str, Any]) -> None:
        assert self._peer is not None
        self._pending = message, self._peer.call("push", message, timeout=PUSH_TIMEOUT)

    def _take(self, call: Call) -> bool:
        """Whether the learner answered; its parameters are then in place."""
        try:
            answer: Any = call.result(self._context.stopping)
        except PeerLost as error:
            _LOG.warning("lost the learner: %s", error)
            return False
        if answer["parameters"] is not None:
            load_flat(self._parameters, answer["parameters"])
        self.version, self.done = answer["version"], answer["done"]
        return True


def _seed(seed: int, index: int, version: int) -> int:
    """A seed of this sampler's own, of 31 bits, as many simulators take no more. A sampler that is restarted meets another
    version, and so does not live the same episodes again."""
    return int(np.random.SeedSequence([seed, index, version]).generate_state(1)[0] >> 1)
