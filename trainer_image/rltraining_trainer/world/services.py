"""What others may call this member for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from rltraining_trainer.errors import TrainerError, user_code_error
from rltraining_trainer.transport import Handler, Parked, Payload, Stopped
from rltraining_trainer.transport.calls import ERROR, LOST

INNER = "world/"
"""How the names of services begin that are not the user's."""


class Services:
    """The handlers of this member, by service.

    Args:
        name: the member's.
        fail: ends the process, since a handler of the user's has raised this.
    """

    def __init__(self, name: str, fail: Callable[[TrainerError], None]) -> None:
        self._name, self._fail = name, fail
        self._handlers: dict[str, Handler] = {}

    def add(self, service: str, handler: Handler) -> None:
        self._handlers[service] = handler

    def add_own(self, service: str, handler: Handler) -> None:
        """One of the user's: called in a thread of its own, one call after the other; what it raises ends the process.

        Not in an RPC thread: these complete the calls that the handler itself makes, and so many of them may wait for
        their turn that none is left.
        """
        calls: SimpleQueue[tuple[str, Payload, Parked]] = SimpleQueue()

        def answer(sender: str, payload: Payload) -> Parked:
            parked = Parked()
            calls.put((sender, payload, parked))
            return parked

        def serve() -> None:
            while True:
                self._answer_own(service, handler, *calls.get())

        threading.Thread(target=serve, name=f"service-{service}", daemon=True).start()
        self.add(service, answer)

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

    def _answer_own(
        self, service: str, handler: Handler, sender: str, payload: Payload, parked: Parked
    ) -> None:
        try:
            answer = handler(sender, payload)
        except Stopped:  # while it called another member
            return
        except (Exception, SystemExit) as error:
            self._fail(user_code_error(f"service {service!r}", error))
            return  # the process ends, and so callers hear that it is lost
        if isinstance(answer, Parked):
            answer.attach(parked.settle)
        else:
            parked.resolve(answer)


def _settled(status: str, text: str) -> Parked:
    answer = Parked()
    answer.settle((status, text))
    return answer
