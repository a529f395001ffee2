"""The members of the job, and calls to them that outlive whoever is called."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

from rltraining_api.names import Role

from rltraining_trainer.transport import (
    Backoff,
    Call,
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

ANSWER_SECONDS = 60.0
"""After which a member that is silent is taken for lost, and called again: no service may take longer."""
_GLANCE = 0.05
"""Seconds between two looks at a member that is not there."""
CALL = "call"
"""The service of endpoints through which all calls go."""
SHARED = f"{INNER}shared"


class Pending:
    """A call that is under way until the member answers, whichever incarnation of it that is."""

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
        """Whether ``result`` would return, or raise, at once. A call that was lost is made again."""
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
        """Until something has happened that ``done`` may tell, for at most so long. Raises Stopped."""
        if self._stopping.is_set():
            raise Stopped("asked to end")
        if self._call is None:
            self._stopping.wait(min(seconds, _GLANCE))
            return
        try:
            self._call.result(self._stopping, timeout=seconds)
        except (PeerLost, Refused, RemoteError):
            return  # `done` and `result` say so

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the answer.

        Raises:
            PeerLost: the member has not answered within ``timeout`` seconds (None: however long it takes). It may have been
                called, and may answer later: nobody hears it.
            RemoteError: the member has no such service, or its answer cannot be sent.
            Stopped: this process is asked to end, or the run is done.
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
            text = str(error).removeprefix(f"{self._peer.url}: ")  # its name says more
            raise RemoteError(text if text.startswith(self._name) else f"{self._name}: {text}") from None


class Member:
    """One learner, replay pod or sampler of the job, dead or alive: the place, not the process that fills it."""

    def __init__(
        self, name: str, role: Role, index: int, directory: Directory, stopping: threading.Event
    ) -> None:
        self.name = name
        """The pod's: ``cartpole-sampler-3``."""
        self.role = role
        self.index = index
        """Within its role, from 0."""
        self._directory, self._stopping = directory, stopping
        self._shared: dict[str, tuple[str, Shared]] = {}

    def __repr__(self) -> str:
        return f"Member({self.name})"

    def start(self, service: str, payload: Payload = None) -> Pending:
        """Call a service and return at once; the answer is ``result()`` of what is returned.

        While the member is dead the call waits for its next incarnation; if it dies before it has answered, that one is called
        again. So a service may be called twice for one answer: what must be counted once needs a number of yours.

        Args:
            service: a name that the member has registered.
            payload: tensors on the CPU and plain values (str, int, float, bool, None, list, tuple, dict). Tensors are not
                copied: leave them alone until there is the answer.

        Raises:
            TypeError: ``payload`` holds anything else.
        """
        pending = Pending(self.name, service, payload, self._directory, self._stopping)
        pending.done()  # which makes the call, if it is known where
        return pending

    def call(self, service: str, payload: Payload = None, timeout: float | None = None) -> Any:
        """Call a service and wait for the answer, through any deaths of the member: see ``start``, and ``Pending.result``."""
        return self.start(service, payload).result(timeout)

    def shared(self, name: str) -> Shared:
        """The newest value that the member shares under ``name``; waits until there is one. A value that is known here is not
        sent again: treat it as read-only.

        While the member is dead this waits for its next incarnation, which begins to count versions anew. Raises Stopped.
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
    """All members of a role, dead or alive, by index: as many as the job asks for now. Samplers may become more or fewer."""

    def __init__(self, count: Callable[[], int], member: Callable[[int], Member]) -> None:
        self._count, self._member = count, member

    def __len__(self) -> int:
        return self._count()

    @overload
    def __getitem__(self, index: int) -> Member: ...
    @overload
    def __getitem__(self, index: slice) -> Members: ...
    def __getitem__(self, index: int | slice) -> Member | Members:
        """A slice is of those that there are now: however many they become, it stays as it is."""
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
        """Part ``index`` of ``count`` equal ones: those with the indices ``index``, ``index + count``, and so on."""
        return Members(lambda: len(range(index, len(self), count)), lambda i: self._member(index + i * count))

    def call(self, service: str, payload: Payload = None, timeout: float | None = None) -> list[Any]:
        """Call a service on all of them at once; their answers, in their order.

        Args:
            timeout: seconds after which it returns with the answers that have come, and None for those that have not. Without
                it, it waits for all, and so for those who are dead until they are back.

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
