"""The members of the job, and calls that are repeated until the member answers."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

from rltraining_api.names import Role

from rltraining_trainer.transport import (
    Backoff,
    Call,
    Endpoint,
    Payload,
    Peer,
    PeerLost,
    Refused,
    RemoteError,
    Stopped,
)
from rltraining_trainer.world.directory import Directory
from rltraining_trainer.world.services import INNER
from rltraining_trainer.world.shared import Shared

_LOG = logging.getLogger(__name__)

ANSWER_SECONDS = 60.0
"""Time limit of a service. A member that does not answer within it is called again."""
_GLANCE = 0.05
"""Seconds between two attempts to reach a member."""
CALL = "call"
"""The service of endpoints that receives all calls."""
SHARED = f"{INNER}shared"


class Pending:
    """A call that is repeated until an incarnation of the member answers."""

    def __init__(
        self, name: str, service: str, payload: Payload, directory: Directory, stopping: threading.Event
    ) -> None:
        self._name, self._service, self._payload = name, service, payload
        self._directory, self._stopping = directory, stopping
        self._backoff = Backoff()
        self._not_before = 0.0
        self._peer: Peer | None = None
        self._call: Call | None = None

    def done(self) -> bool:
        """Whether ``result`` returns or raises without blocking. Repeats a lost call."""
        now = time.monotonic()
        if self._call is None and now >= self._not_before:
            self._peer = self._directory.peer(self._name)
            if self._peer is not None:
                message = (self._name, self._service, self._payload)
                self._call = self._peer.call(CALL, message, timeout=ANSWER_SECONDS)
        if self._call is None or not self._call.done():
            return False
        if not self._call.lost:
            return True
        assert self._peer is not None
        self._directory.lost(self._name, self._peer)
        self._call, self._not_before = None, now + self._backoff.delay()
        return False

    def wait(self, seconds: float) -> None:
        """Blocks until ``done`` may have changed, for at most ``seconds``. Raises Stopped."""
        if self._stopping.is_set():
            raise Stopped("asked to end")
        if self._call is None:
            self._stopping.wait(min(seconds, _GLANCE))
            return
        try:
            self._call.result(self._stopping, timeout=seconds)
        except (PeerLost, Refused, RemoteError):
            return  # `done` and `result` report the error

    def result(self, timeout: float | None = None) -> Any:
        """Waits for the answer and returns it.

        Raises:
            PeerLost: the member did not answer within ``timeout`` seconds (None: no limit). The
                service may still have been called. A later answer is discarded.
            RemoteError: the member has no such service, or its answer cannot be sent.
            Stopped: this process should end, or the run is done.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.done():
            left = 1.0 if deadline is None else deadline - time.monotonic()
            if left <= 0.0:
                raise PeerLost(f"{self._name} did not answer {self._service!r} within {timeout} s")
            self.wait(min(left, 1.0))
        assert self._call is not None
        assert self._peer is not None
        try:
            return self._call.result()
        except RemoteError as error:
            text = str(error).removeprefix(f"{self._peer.url}: ")  # the member's name is clearer
            raise RemoteError(text if text.startswith(self._name) else f"{self._name}: {text}") from None


class Member:
    """One learner, replay pod or sampler of the job, whether its process is running or not."""

    def __init__(
        self, name: str, role: Role, index: int, directory: Directory, stopping: threading.Event
    ) -> None:
        self.name = name
        """Name of the pod, such as ``cartpole-sampler-3``."""
        self.role = role
        self.index = index
        """Index within the role, from 0."""
        self._directory, self._stopping = directory, stopping
        self._shared: dict[str, tuple[str, Shared]] = {}

    def __repr__(self) -> str:
        return f"Member({self.name})"

    def start(self, service: str, payload: Payload = None) -> Pending:
        """Calls a service without waiting. ``result()`` of the returned object is the answer.

        While the member is dead, the call waits for its next incarnation. If the member dies before
        it has answered, its next incarnation is called again. So a service may be called twice for
        one answer: add a sequence number to requests that must be counted once.

        Args:
            service: a name that the member has registered.
            payload: tensors on the CPU and plain values (str, int, float, bool, None, list, tuple,
                dict). Tensors are not copied: do not change them before the answer.

        Raises:
            TypeError: ``payload`` contains anything else.
        """
        pending = Pending(self.name, service, payload, self._directory, self._stopping)
        pending.done()  # makes the call if the address is known
        return pending

    def call(self, service: str, payload: Payload = None, timeout: float | None = None) -> Any:
        """Calls a service and returns the answer, also if the member restarts meanwhile.

        See ``start`` and ``Pending.result``.
        """
        return self.start(service, payload).result(timeout)

    def shared(self, name: str) -> Shared:
        """Returns the newest value that the member shares under ``name``. Waits for the first one.

        The value is read-only: this member caches it, and a cached value is not sent again. While
        the member is dead, this method waits for its next incarnation, which counts versions from
        1. Raises Stopped.
        """
        backoff = Backoff(cap=0.5)
        while True:
            incarnation, known = self._shared.get(name, ("", Shared(0, None)))
            answer = self.call(SHARED, (name, incarnation, known.version))
            if answer[1]:
                break
            if backoff.wait(self._stopping):
                raise Stopped("asked to end")
        if answer[:2] != (incarnation, known.version):
            known = Shared(answer[1], answer[2])
            self._shared[name] = answer[0], known
        return known


class Members(Sequence[Member]):
    """All members of a role, dead or alive, by index.

    The length is the number of replicas in the job's spec. The number of samplers may change.
    """

    def __init__(self, count: Callable[[], int], member: Callable[[int], Member]) -> None:
        self._count, self._member = count, member

    def __len__(self) -> int:
        return self._count()

    @overload
    def __getitem__(self, index: int) -> Member: ...
    @overload
    def __getitem__(self, index: slice) -> Members: ...
    def __getitem__(self, index: int | slice) -> Member | Members:
        """A slice contains the present members. It does not change with the number of members."""
        places = range(len(self))
        if isinstance(index, slice):
            taken = places[index]
            return Members(lambda: len(taken), lambda i: self._member(taken[i]))
        try:
            return self._member(places[index])
        except IndexError:
            raise IndexError(f"there are {len(places)} of them: none has the index {index}") from None

    def __iter__(self) -> Iterator[Member]:
        return map(self._member, range(len(self)))

    def part(self, index: int, count: int) -> Members:
        """Returns the members ``index``, ``index + count``, ``index + 2·count``, and so on."""
        return Members(lambda: len(range(index, len(self), count)), lambda i: self._member(index + i * count))

    def call(self, service: str, payload: Payload = None, timeout: float | None = None) -> list[Any]:
        """Calls a service of all members in parallel and returns their answers in order.

        Args:
            timeout: seconds to wait. The answer of a member that did not answer in time is None.
                None: wait for all members, and for restarts of dead members.

        Raises:
            RemoteError, Stopped: as ``Pending.result``. TypeError: as ``Member.start``.
        """
        deadline = time.monotonic() + timeout if timeout is not None else float("inf")
        calls = [member.start(service, payload) for member in self]
        while waiting := [call for call in calls if not call.done()]:
            left = deadline - time.monotonic()
            if left <= 0.0:
                break
            waiting[0].wait(min(left, _GLANCE))
        return [call.result() if call not in waiting else None for call in calls]


class RepeatedCall:
    """Calls a service of a member repeatedly, one call at a time. `tick` does not block.

    Args:
        ask: returns the fields of the next message, or None if there is nothing to send.
        take: processes an answer.
    """

    PERIOD_SECONDS = 0.25

    def __init__(
        self,
        member: Member,
        service: str,
        endpoint: Endpoint,
        ask: Callable[[], dict[str, Any] | None],
        take: Callable[[Any], None] = lambda answer: None,
    ) -> None:
        self._member, self._service, self._endpoint = member, service, endpoint
        self._ask, self._take = ask, take
        self._pending: Pending | None = None
        self._sequence, self._next = 0, 0.0

    def tick(self, now: float) -> None:
        """Processes an answer that has arrived, and makes the next call if it is due."""
        if self._pending is not None:
            if not self._pending.done():
                return
            pending, self._pending = self._pending, None
            try:
                self._take(pending.result())
            except RemoteError as error:
                _LOG.warning("%s", error)
        if now < self._next or (message := self._ask()) is None:
            return
        self._next = now + self.PERIOD_SECONDS
        self._sequence += 1
        origin = {"incarnation": self._endpoint.incarnation, "sequence": self._sequence}
        self._pending = self._member.start(self._service, origin | message)
