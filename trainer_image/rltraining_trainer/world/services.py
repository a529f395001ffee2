"""The services of a member."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, NamedTuple

from rltraining_trainer.errors import TrainerError, UserCodeError, user_code_error
from rltraining_trainer.transport import DeferredReply, Handler, Payload, Stopped
from rltraining_trainer.transport.calls import ERROR, LOST, OK, Answer
from rltraining_trainer.transport.payload import pack

INNER = "world/"
"""Prefix of the names of built-in services."""
CLOSE_SECONDS = 5.0
"""How long the end of the process waits for busy handlers."""


class Services:
    """The handlers of this member, by service.

    Args:
        name: name of the member.
        fail: ends the process after an exception in a handler of user code.
    """

    def __init__(self, name: str, fail: Callable[[TrainerError], None]) -> None:
        self._name, self._fail = name, fail
        self._handlers: dict[str, Handler] = {}
        self._own: list[tuple[threading.Thread, SimpleQueue[_Call | None]]] = []
        self._closing = False

    def add(self, service: str, handler: Handler) -> None:
        self._handlers[service] = handler

    def add_own(self, service: str, handler: Handler) -> None:
        """Adds a service of user code.

        Its handler runs in a separate thread, one call after another, and an exception ends the
        process. It does not run in an RPC thread, because RPC threads complete the calls that the
        handler makes, and waiting calls could occupy all of these threads.
        """
        calls: SimpleQueue[_Call | None] = SimpleQueue()

        def answer(sender: str, payload: Payload) -> DeferredReply:
            deferred = DeferredReply()
            calls.put(_Call(sender, payload, deferred))
            return deferred

        def serve() -> None:
            while (call := calls.get()) is not None and not self._closing:
                self._answer_own(service, handler, call)

        thread = threading.Thread(target=serve, name=f"service-{service}", daemon=True)
        thread.start()
        self._own.append((thread, calls))
        self.add(service, answer)

    def close(self) -> None:
        """Starts no further calls of user handlers, and waits up to CLOSE_SECONDS for running ones.

        A thread that is inside torch when the interpreter ends aborts the process.
        """
        self._closing = True
        for _, calls in self._own:
            calls.put(None)
        until = time.monotonic() + CLOSE_SECONDS
        for thread, _ in self._own:
            thread.join(max(0.0, until - time.monotonic()))

    def answer(self, sender: str, message: Any) -> Payload | DeferredReply:
        """Answers ``(receiver, service, payload)``. This is the endpoint's only service."""
        receiver, service, payload = message
        if receiver != self._name:  # the receiver died, and this member has its port
            return _settled(LOST, f"{receiver} is not here any more")
        handler = self._handlers.get(service)
        if handler is None:
            own = sorted(name for name in self._handlers if not name.startswith(INNER))
            return _settled(ERROR, f"{self._name} has no service {service!r}, only {own}")
        return handler(sender, payload)

    def _answer_own(self, service: str, handler: Handler, call: _Call) -> None:
        try:
            answer = handler(call.sender, call.payload)
        except Stopped:  # raised by a call that the handler made
            return
        except BaseException as error:
            self._fail(user_code_error(f"service {service!r}", error))
            return  # callers see a lost connection, since the process ends

        def settle(answer: Answer) -> None:
            try:
                pack(answer[1])
            except TypeError as error:  # report it here, where the service is known
                self._fail(UserCodeError(f"the answer of service {service!r} is refused: {error}"))
            else:
                call.deferred.settle(answer)

        if isinstance(answer, DeferredReply):
            answer.attach(settle)
        else:
            settle((OK, answer))


class _Call(NamedTuple):
    """A call of a service of user code."""

    sender: str
    payload: Payload
    deferred: DeferredReply


def _settled(status: str, text: str) -> DeferredReply:
    answer = DeferredReply()
    answer.settle((status, text))
    return answer
