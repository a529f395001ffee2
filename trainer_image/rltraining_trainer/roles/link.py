"""A sampler's way to those who take what it has made, and back."""

from __future__ import annotations

import logging
import math
import threading
import time
from typing import Any

import torch
from gymnasium import spaces

from rltraining_trainer.dataflow import WANTS_NONE, load_flat
from rltraining_trainer.environments import StepperStats
from rltraining_trainer.metrics import WaitMeter
from rltraining_trainer.roles.context import Context
from rltraining_trainer.roles.discards import discard_fields
from rltraining_trainer.transport import Backoff, Call, Endpoint, Peer, PeerLost, discover

_LOG = logging.getLogger(__name__)

SEND_TIMEOUT = 60.0
"""Seconds for one message: it includes the time for which a busy receiver holds us back, where the job does not say more."""

REPORT_SECONDS = 0.5
"""Seconds after which a sampler reports that pushes nothing to the learner, however slow its environments are: whoever is
silent is taken for lost."""

FAREWELL = REPORT_SECONDS + 0.3
"""Seconds for which members that call are still answered when the run is done: those that report once in a while have the time
to finish a block and call. One that does not hear of it is ended by the operator, after seconds more."""

LARGE_BYTES = 4096
"""An observation from which on it matters how messages travel, which hold many: an 84x84 frame has 7,056."""


LARGE_GRADIENT_BYTES = 1 << 20
"""The same for a gradient and the parameters that come back, one tensor each."""


def is_large(observation: spaces.Space) -> bool:
    """Whether messages about such observations had better go from memory to memory: see Endpoint."""
    if observation.shape is None or observation.dtype is None:
        return False
    return math.prod(observation.shape) * observation.dtype.itemsize >= LARGE_BYTES


class Link:
    """Messages to one member, which may die and come back: none is lost while it lives, and none is taken twice.

    Args:
        url: where the member is found.
        endpoint: this process's.
        service: what answers ``send``.
        alone: nobody else uses the endpoint, which is then begun anew when the member is lost: that frees what the broken
            connection held. Otherwise it must have been started.
        timeout: seconds for one message.
    """

    def __init__(
        self,
        context: Context,
        url: str,
        endpoint: Endpoint,
        service: str,
        *,
        alone: bool,
        timeout: float = SEND_TIMEOUT,
    ) -> None:
        self.attached = threading.Event()
        self._context, self._url, self._endpoint = context, url, endpoint
        self._service = service
        self._alone, self._timeout = alone, timeout
        self._backoff = Backoff()
        self._peer: Peer | None = None
        self._silent = False  # it does not answer, on a connection that is whole
        self._sequence = 0
        self._pending: tuple[dict[str, Any], Call] | None = None  # what is on its way
        self._attachments = 0
        self._waits = WaitMeter()

    @property
    def wait_seconds(self) -> float:
        """For which the member was waited for, once it had been found. Any thread may ask, also for `reconnects`."""
        return self._waits.total(time.monotonic())

    @property
    def reconnects(self) -> int:
        """How often the member was found anew."""
        return max(0, self._attachments - 1)

    @property
    def idle(self) -> bool:
        """Nothing is on its way. An answer that is there is taken."""
        if self._pending is not None and self._pending[1].done():
            self.settle()
        return self._pending is None

    def send(self, **content: Any) -> None:
        """Send a message. Returns when the one before has been answered, so that one is always on its way while the next
        is made.

        What was on its way when the member was lost is sent again, to the next one, which knows it by its number.
        """
        self._sequence += 1
        message = {"incarnation": self._endpoint.incarnation, "sequence": self._sequence, **content}
        self.settle()
        self._send(message)

    def settle(self) -> None:
        """Wait for the answer to what is on its way."""
        if self._pending is None:
            return
        self._waits.begin(time.monotonic())
        while self._pending is not None:
            message, call = self._pending
            if self._take(call):
                self._pending = None
            else:
                self.attach()
                self._send(message)
        self._waits.end(time.monotonic())

    def attach(self) -> None:
        """Find the member, however long it takes."""
        self.attached.clear()
        stopping = self._context.stopping
        while True:
            try:
                if self._alone:
                    self._endpoint.stop()
                    self._endpoint.start()
                url = discover(self._url, self._context.token, stopping=stopping)["url"]
                if not (self._silent and self._peer is not None and self._peer.url == url):
                    self._peer = self._endpoint.dial(url)  # each takes descriptors, for as long as we live
            except PeerLost as error:
                _LOG.debug("nobody at %s yet: %s", self._url, error)
            else:
                if self._greet(self._peer):
                    break
            self._backoff.wait(stopping)
        self._backoff.reset()
        self._attachments += 1
        self.attached.set()

    def refresh(self) -> None:
        """Greet the member again."""
        if self._peer is None or not self._greet(self._peer):
            self.attach()

    def ask(self, service: str, payload: Any) -> Any:
        """The member's answer to something that is asked once; None if it is gone."""
        assert self._peer is not None
        self._waits.begin(time.monotonic())
        try:
            return self._peer.call(service, payload, timeout=self._timeout).result(self._context.stopping)
        except PeerLost:
            return None
        finally:
            self._waits.end(time.monotonic())

    def _greet(self, peer: Peer) -> bool:
        """The first words to a member that was found; whether it answers."""
        return True

    def _accept(self, answer: Any) -> None:
        """What to do with an answer."""

    def _send(self, message: dict[str, Any]) -> None:
        assert self._peer is not None
        self._pending = message, self._peer.call(self._service, message, timeout=self._timeout)

    def _take(self, call: Call) -> bool:
        """Whether the member answered."""
        try:
            answer: Any = call.result(self._context.stopping)
        except PeerLost as error:
            _LOG.warning("lost %s: %s", self._url, error)
            return False
        self._accept(answer)
        return True


class LearnerLink(Link):
    """Messages go to the learner, parameters come into ``parameters``; None wants none.

    Each answer is ``{"version": int, "parameters": Tensor [N] | None, "done": bool}`` at least.
    """

    def __init__(
        self,
        context: Context,
        url: str,
        endpoint: Endpoint,
        service: str,
        parameters: torch.Tensor | None,
        *,
        alone: bool,
        timeout: float = SEND_TIMEOUT,
    ) -> None:
        super().__init__(context, url, endpoint, service, alone=alone, timeout=timeout)
        self.version = self._unknown = 0 if parameters is not None else WANTS_NONE
        """Of the parameters as they are."""
        self.done = False
        self.answer: dict[str, Any] = {}
        """The newest."""
        self.stats: StepperStats | None = None
        """Counters of this sampler's environments. If set, messages report discarded episodes."""
        self._parameters = parameters

    def send(self, **content: Any) -> None:
        if self.stats is not None:
            content |= discard_fields(self._context.pod, self._endpoint.incarnation, self.stats)
        super().send(version=self.version, **content)

    def _greet(self, peer: Peer) -> bool:
        self.version = (
            self._unknown
        )  # the versions of another incarnation of the learner may be other parameters
        pull = {"version": self.version}
        if self._pending is not None and "place" in self.answer:
            pull["place"] = self.answer["place"]  # what is on its way goes on from there
        until = time.monotonic() + self._timeout
        if not self._take(peer.call("pull", pull, timeout=self._timeout)):
            self._silent = not self._alone and time.monotonic() >= until
            return False
        self._silent = False
        _LOG.info("attached to the learner at version %d", self.version)
        return True

    def _accept(self, answer: Any) -> None:
        if self._parameters is not None:
            self.version = answer["version"]
            if answer["parameters"] is not None:
                load_flat(self._parameters, answer["parameters"])
        self.done, self.answer = answer["done"], answer
