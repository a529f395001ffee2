"""Sessions of a sampler or replay pod with one other member, which may die and restart."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import Any

import torch
from gymnasium import spaces

from rltraining_trainer.dataflow import WANTS_NONE, load_flat
from rltraining_trainer.metrics import WaitMeter
from rltraining_trainer.roles.context import Context
from rltraining_trainer.transport import (
    Backoff,
    Call,
    Endpoint,
    Peer,
    PeerLost,
    RemoteError,
    Stopped,
    discover,
)

_LOG = logging.getLogger(__name__)

SEND_TIMEOUT = 60.0
"""Default timeout of one message in seconds. It includes the time for which a full queue holds the sender back."""

TIMER_SECONDS = 0.01
"""torch ends a call up to this much before its timeout (0.1 ms was measured)."""

REPORT_SECONDS = 0.5
"""Maximum seconds between two reports of a sampler, since the learner takes silent samplers for lost."""

PUBLISH_SECONDS = 0.05
"""Seconds between two requests for the first parameters."""

LINGER_SECONDS = REPORT_SECONDS + 0.3
"""How long members answer calls after the end of the run, so that all samplers receive the end with an answer. The operator
ends other samplers some seconds later."""

LARGE_OBSERVATION_BYTES = 4096
"""Size from which messages with many observations use shared memory. An 84x84 frame has 7,056 bytes."""

LARGE_GRADIENT_BYTES = 1 << 20
"""The same size for a gradient and the parameters in its answer, which are one tensor each."""


def size_of(space: spaces.Space) -> int:
    """Returns the size of one element in bytes, or 0 if it is not a single array."""
    if space.shape is None or space.dtype is None:
        return 0
    return math.prod(space.shape) * space.dtype.itemsize


def is_large(observation: spaces.Space) -> bool:
    """Returns whether messages about such observations should use shared memory (see ``Endpoint``)."""
    return size_of(observation) >= LARGE_OBSERVATION_BYTES


class MemberSession:
    """Sends messages to one member, through its restarts. No message is lost, and none is counted twice.

    A message that is answered with an error is not repeated: `send` and `settle` raise the error once.

    Args:
        context: token, and the signal to stop.
        url: base URL at which the member is discovered.
        endpoint: this process's endpoint.
        service: the member's service that receives ``send``.
        alone: whether only this session uses the endpoint. A reconnect then restarts the endpoint, which frees the memory of
            the broken connection. Otherwise the endpoint must have been started.
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
        self.attached = False
        """Whether the member is connected."""
        self._context, self._url, self._endpoint = context, url, endpoint
        self._service = service
        self._alone, self._timeout = alone, timeout
        self._backoff = Backoff()
        self._peer: Peer | None = None
        self._silent = False  # the first request timed out, although the connection works
        self._late = False  # the last message timed out, although the connection works
        self._sent = 0.0  # time when the message was sent
        self._sequence = 0
        self._pending: tuple[dict[str, Any], Call] | None = None  # the message in transit
        self._attachments = 0
        self._waits = WaitMeter()

    @property
    def wait_seconds(self) -> float:
        """Seconds of waiting for the member while it was connected. Thread-safe, like `reconnects`."""
        return self._waits.total(time.monotonic())

    @property
    def reconnects(self) -> int:
        """Number of connections after the first one."""
        return max(0, self._attachments - 1)

    @property
    def in_transit(self) -> bool:
        """Whether the answer to the last message has not been processed."""
        return self._pending is not None

    @property
    def is_unanswered(self) -> bool:
        """Whether the answer to the message in transit has not arrived. The call of a lost connection is answered."""
        return self._pending is not None and not self._pending[1].done()

    def send(self, **content: Any) -> None:
        """Sends a message, after the previous message has been answered.

        The caller prepares the next message while this one is in transit. If the member is lost, the next incarnation receives
        the message again and recognises a repeated message by its sequence number.
        """
        self._sequence += 1
        message = {"incarnation": self._endpoint.incarnation, "sequence": self._sequence, **content}
        self.settle()
        self._send(message)

    def settle(self) -> None:
        """Waits for the answer to the message in transit, if there is one."""
        if self._pending is None:
            return
        self._waits.begin(time.monotonic())
        try:
            while self._pending is not None:
                message, call = self._pending
                if self._is_answered(call):
                    self._pending = None
                else:
                    self._late = self._has_timed_out(self._sent)
                    self.attach()
                    self._send(message)
        finally:
            self._waits.end(time.monotonic())

    def attach(self) -> None:
        """Connects to the member. Retries without a limit. Raises Stopped."""
        self.attached = False
        stopping = self._context.stopping
        reuses, self._late = self._late, False
        while True:
            try:
                if self._alone:
                    self._endpoint.stop()
                    self._endpoint.start()
                document = discover(
                    self._url, self._context.token, stopping=stopping, tls_port=self._context.tls_port
                )
                url = document["url"]
                is_same = self._peer is not None and self._peer.url == url
                if self._peer is None or not (is_same and (self._silent or reuses)):
                    # Each connection takes descriptors until the process ends.
                    self._peer = self._endpoint.dial(url)
            except PeerLost as error:
                _LOG.debug("nothing at %s yet: %s", self._url, error)
            else:
                if self._greet(self._peer):
                    break
                if reuses:  # the connection does not work
                    self._silent = reuses = False
            if self._backoff.wait(stopping):
                raise Stopped("asked to end")
        self._backoff.reset()
        self._attachments += 1
        self.attached = True

    def refresh(self) -> None:
        """Repeats the first request to the member."""
        if self._peer is None or not self._greet(self._peer):
            self.attach()

    def ask(self, service: str, payload: Any) -> Any:
        """Calls a service once. Returns None if the member is lost."""
        assert self._peer is not None
        self._waits.begin(time.monotonic())
        try:
            return self._peer.call(service, payload, timeout=self._timeout).result(self._context.stopping)
        except PeerLost:
            return None
        finally:
            self._waits.end(time.monotonic())

    def _greet(self, peer: Peer) -> bool:
        """Sends the first request to a new connection. Returns whether the member answers."""
        return True

    def _accept(self, answer: Any) -> None:
        """Processes an answer."""

    def _send(self, message: dict[str, Any]) -> None:
        assert self._peer is not None
        self._sent = time.monotonic()
        self._pending = message, self._peer.call(self._service, message, timeout=self._timeout)

    def _has_timed_out(self, sent: float) -> bool:
        """Returns whether a lost call has timed out since ``sent``, so that its connection may still work."""
        return not self._alone and time.monotonic() >= sent + self._timeout - TIMER_SECONDS

    def _is_answered(self, call: Call) -> bool:
        """Waits for the answer to the message in transit. Returns whether the member answered."""
        try:
            return self._receive(call)
        except RemoteError:
            self._pending = None  # a repeated message would get the same answer
            raise

    def _receive(self, call: Call) -> bool:
        """Waits for an answer. Returns whether the member answered."""
        try:
            answer: Any = call.result(self._context.stopping)
        except PeerLost as error:
            _LOG.warning("lost %s: %s", self._url, error)
            return False
        self._accept(answer)
        return True


class LearnerSession(MemberSession):
    """Sends messages to a learner, and receives its parameters with the answers.

    Each answer contains ``{"version": int, "parameters": Tensor [N] | None, "done": bool}`` at least.

    Args:
        path: prefix of the services ``push`` and ``pull``.
        parameters: ``[N]``, receives newer parameters. None: they are not sent.
        counters: returns further fields of each message, such as the discarded episodes.
    """

    def __init__(
        self,
        context: Context,
        url: str,
        endpoint: Endpoint,
        path: str,
        parameters: torch.Tensor | None,
        *,
        alone: bool,
        timeout: float = SEND_TIMEOUT,
        counters: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        super().__init__(context, url, endpoint, f"{path}/push", alone=alone, timeout=timeout)
        self.version = self._unknown = 0 if parameters is not None else WANTS_NONE
        """Version of the loaded parameters."""
        self.done = False
        """Whether the run is done."""
        self.answer: dict[str, Any] = {}
        """The newest answer."""
        self._pull, self._parameters, self._counters = f"{path}/pull", parameters, counters

    def send(self, **content: Any) -> None:
        super().send(version=self.version, **content, **self._counters())

    def request(self, service: str) -> None:
        """Calls a service and processes its answer. Connects again if the learner is lost."""
        answer = self.ask(service, {"version": self.version})
        if answer is None:
            self.attach()
        else:
            self._accept(answer)

    def _greet(self, peer: Peer) -> bool:
        """Waits for the learner's first parameters too, since a sampler's own ones are of another network."""
        while self._pull_from(peer):
            starts = self._parameters is not None and not self._attachments
            if not starts or self.done or self.answer["parameters"] is not None:
                _LOG.info("attached to the learner at version %d", self.version)
                return True
            if self._context.stopping.wait(PUBLISH_SECONDS):
                raise Stopped("asked to end")
        return False

    def _pull_from(self, peer: Peer) -> bool:
        # Another incarnation of the learner may use the same version for other parameters.
        self.version = self._unknown
        pull = {"version": self.version}
        if self._pending is not None and "place" in self.answer:
            pull["place"] = self.answer["place"]  # the message in transit continues from there
        sent = time.monotonic()
        if not self._receive(peer.call(self._pull, pull, timeout=self._timeout)):
            self._silent = self._has_timed_out(sent)
            return False
        self._silent = False
        return True

    def _accept(self, answer: Any) -> None:
        if self._parameters is not None and answer["parameters"] is not None:
            self.version = answer["version"]
            self._load(answer["parameters"])
        self.done, self.answer = answer["done"], answer

    def _load(self, parameters: torch.Tensor) -> None:
        assert self._parameters is not None
        load_flat(self._parameters, parameters)


class Connections:
    """The sessions of this sampler or replay pod, which share its endpoint.

    Args:
        counters: returns further fields of each message to a learner.
        on_done: called when a learner reports the end of the run.
        started: whether this member has started, so that its sessions can connect.
    """

    def __init__(
        self,
        context: Context,
        endpoint: Endpoint,
        counters: Callable[[], dict[str, Any]] = dict,
        on_done: Callable[[], None] = lambda: None,
        *,
        started: bool = True,
    ) -> None:
        self.alone = False
        """Whether one session is the only user of the endpoint, and starts it (see ``MemberSession``)."""
        self.started = started
        self.sessions: list[MemberSession] = []
        self.context, self.endpoint = context, endpoint
        self._counters, self._on_done = counters, on_done

    @property
    def attached(self) -> bool:
        """Whether all members are connected."""
        return all(session.attached for session in self.sessions)

    def learner(
        self,
        index: int,
        path: str,
        parameters: torch.Tensor | None,
        *,
        timeout: float = SEND_TIMEOUT,
        kind: type[LearnerSession] = LearnerSession,
    ) -> LearnerSession:
        """Returns a session with a learner, which is not attached yet (see ``LearnerSession``)."""
        session = kind(
            self.context,
            self.context.learners[index],
            self.endpoint,
            path,
            parameters,
            alone=self.alone,
            timeout=timeout,
            counters=self._counters,
        )
        self.sessions.append(session)
        return session

    def member(self, url: str, service: str) -> MemberSession:
        """Returns a session with the member at ``url``, which is not attached yet."""
        session = MemberSession(self.context, url, self.endpoint, service, alone=self.alone)
        self.sessions.append(session)
        return session

    def check_started(self, call: str) -> None:
        """Raises RuntimeError if a user's program uses ``call`` before `World.start`."""
        if not self.started:
            raise RuntimeError(f"call world.start() before {call}")

    def check(self, *sessions: LearnerSession) -> None:
        """Raises Stopped if one of these learners has reported the end of the run, or this process should end."""
        if any(session.done for session in sessions):
            self._on_done()
            raise Stopped("the run is done")
        if self.context.stopping.is_set():
            raise Stopped("asked to end")
