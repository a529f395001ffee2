"""A pending call (`Call`), and a deferred answer (`DeferredReply`)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeAlias

from rltraining_trainer.transport.errors import PeerLost, Refused, RemoteError
from rltraining_trainer.transport.payload import Opened, Payload
from rltraining_trainer.transport.waiting import Latch

Answer: TypeAlias = "tuple[str, Payload]"
"""The answer on the wire: OK and the payload, or another status and a text."""
OK, REFUSED, ERROR, LOST = "ok", "refused", "error", "lost"
REFUSAL = "refused: the token is wrong"
"""The error of torch RPC that a caller without the token gets."""

_ERRORS = {REFUSED: Refused, ERROR: RemoteError, LOST: PeerLost}
_GRACE_SECONDS = 1.0
"""Seconds added to a call's time-out, since torch's timer needs a free RPC thread to fire."""


class DeferredReply:
    """A deferred answer. A handler returns it immediately, and no thread blocks until the answer is
    given.

    Any thread may give the answer, also before the handler has returned. The first answer counts.
    Later answers, and answers to a caller that is gone, are ignored.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answer: Answer | None = None
        self._deliver: Callable[[Answer], None] | None = None

    def resolve(self, payload: Payload) -> None:
        """Answers with `payload`."""
        self.settle((OK, payload))

    def fail(self, text: str) -> None:
        """Makes the caller's `result` raise RemoteError with `text`."""
        self.settle((ERROR, text))

    def settle(self, answer: Answer) -> None:
        """Gives any answer. For the endpoint only."""
        with self._lock:
            if self._answer is not None:
                return
            self._answer = answer
            deliver = self._deliver
        if deliver is not None:
            deliver(answer)

    def attach(self, deliver: Callable[[Answer], None]) -> None:
        """Sets the callback for the answer. For the endpoint only."""
        with self._lock:
            self._deliver = deliver
            answer = self._answer
        if answer is not None:
            deliver(answer)


class Call:
    """One call to a peer, pending or done."""

    def __init__(self, url: str, timeout: float) -> None:
        self._url = url
        self._timeout = timeout
        self._latch = Latch()
        self._answer: Answer | None = None

    def done(self) -> bool:
        """Returns whether `result` would return or raise without blocking."""
        return self._answer is not None

    @property
    def lost(self) -> bool:
        """Whether the connection broke or the call timed out."""
        return self._answer is not None and self._answer[0] == LOST

    def result(self, stopping: threading.Event | None = None, timeout: float | None = None) -> Payload:
        """Waits for the answer. Signal handlers run meanwhile, also in the main thread.

        Raises:
            PeerLost: The connection broke, or there was no answer within `timeout` seconds. The
                default is the call's time-out.
            Refused: The peer does not accept this token.
            RemoteError: The peer's handler raised an exception.
            Stopped: `stopping` was set.
        """
        if not self._latch.wait(self._timeout + _GRACE_SECONDS if timeout is None else timeout, stopping):
            raise PeerLost(f"{self._url}: no answer in time")
        assert self._answer is not None
        status, payload = self._answer
        if status == OK:
            return payload
        raise _ERRORS[status](f"{self._url}: {payload}")

    def finish(self, future: Any) -> None:
        """Takes the answer from torch's completed future, on an RPC thread. For the endpoint only."""
        try:
            self.settle(_checked(future.value()))
        except RuntimeError as error:  # torch reports end of file, reset, refused and time-out alike
            text = str(error)
            self.settle((REFUSED, "the token is wrong") if REFUSAL in text else (LOST, _tidy(text)))

    def settle(self, answer: Answer) -> None:
        """Sets the answer, once. For the endpoint only."""
        self._answer = answer
        self._latch.set()


def _checked(opened: Any) -> Answer:
    # A process without the token receives the key of calls, and must not answer with it.
    has_key = isinstance(opened, Opened) and not opened.is_call
    answer = opened.content if has_key else "a message without the key"
    if isinstance(answer, tuple) and len(answer) == 2 and answer[0] in (OK, *_ERRORS):
        return answer
    return (LOST, f"not one of ours: it answered {str(answer)[:200]}")


def _tidy(text: str) -> str:
    """Returns the first line of torch's message, without the location in torch's source."""
    return text.split("\n", 1)[0].split(" (this error originated", 1)[0]
