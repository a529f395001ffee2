"""What others may call this member for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, NamedTuple

from rltraining_trainer.errors import TrainerError, UserCodeError, user_code_error
from rltraining_trainer.transport import Handler, Parked, Payload, Stopped
from rltraining_trainer.transport.calls import ERROR, LOST, OK, Answer
from rltraining_trainer.transport.payload import pack

INNER = "world/"
"""How the names of services begin that are not the user's."""
CLOSE_SECONDS = 5.0
"""In which a handler is to end that is busy when the process is to."""


class Services:
    """The handlers of this member, by service.

    Args:
        name: the member's.
        fail: ends the process, since a handler of the user's has raised this.
    """

    def __init__(self, name: str, fail: Callable[[TrainerError], None]) -> None:
        self._name, self._fail = name, fail
        self._handlers: dict[str, Handler] = {}
        self._own: list[tuple[threading.Thread, SimpleQueue[_Call | None]]] = []
        self._closing = False

    def add(self, service: str, handler: Handler) -> None:
        self._handlers[service] = handler

    def add_own(self, service: str, handler: Handler) -> None:
        """One of the user's: called in a thread of its own, one call after the other; what it raises ends the process.

        Not in an RPC thread: these complete the calls that the handler itself makes, and so many of them may wait for
        their turn that none is left.
        """
        calls: SimpleQueue[_Call | None] = SimpleQueue()

        def answer(sender: str, payload: Payload) -> Parked:
            parked = Parked()
            calls.put(_Call(sender, payload, parked))
            return parked

        def serve() -> None:
            while (call := calls.get()) is not None and not self._closing:
                self._answer_own(service, handler, call)

        thread = threading.Thread(target=serve, name=f"service-{service}", daemon=True)
        thread.start()
        self._own.append((thread, calls))
        self.add(service, answer)

    def close(self) -> None:
        """Begin no call of the user's handlers any more, and wait for those that are under way, for a while: a thread that is
        within torch when the interpreter ends aborts the process."""
        self._closing = True
        for _, calls in self._own:
            calls.put(None)
        until = time.monotonic() + CLOSE_SECONDS
        for thread, _ in self._own:
            thread.join(max(0.0, until - time.monotonic()))

    def answer(self, sender: str, message: Any) -> Payload | Parked:
        """The one service of the endpoint: ``(receiver, service, payload)`` to the answer."""
        receiver, service, payload = message
        if receiver != self._name:  # which has died, and its port is ours now
            return _settled(LOST, f"{receiver} is not here any more")
        handler = self._handlers.get(service)
        if handler is None:
            own = sorted(name for name in self._handlers if not name.startswith(INNER))
            return _settled(ERROR, f"{self._name} has no service {service!r}, only {own}")
        return handler(sender, payload)

    def _answer_own(self, service: str, handler: Handler, call: _Call) -> None:
        try:
            answer = handler(call.sender, call.payload)
        except Stopped:  # while it called another member
            return
        except BaseException as error:
            self._fail(user_code_error(f"service {service!r}", error))
            return  # the process ends, and so callers hear that it is lost

        def settle(answer: Answer) -> None:
            try:
                pack(answer[1])
            except TypeError as error:  # here, where it is known whose it is
                self._fail(UserCodeError(f"the answer of service {service!r} is refused: {error}"))
            else:
                call.parked.settle(answer)

        if isinstance(answer, Parked):
            answer.attach(settle)
        else:
            settle((OK, answer))


class _Call(NamedTuple):
    """Of one of the user's services."""

    sender: str
    payload: Payload
    parked: Parked


def _settled(status: str, text: str) -> Parked:
    answer = Parked()
    answer.settle((status, text))
    return answer
