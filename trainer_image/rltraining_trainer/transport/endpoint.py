"""A process' place in the job's network: it answers calls (`services`), and it calls others (`dial`).

    learner                                          sampler
    Endpoint(name, token, {"push": handler},         Endpoint(name, token).start()
             on_url=publish).start()                 peer = endpoint.dial(discover(...)["url"])
                                                     peer.call("push", payload).result(stopping)

The callee needs to know nothing of its callers, so the death of one concerns nobody else. A caller that gets
PeerLost stops and starts its own endpoint (1 ms, and torch frees the broken connection), discovers, and dials
again.
"""

from __future__ import annotations

import atexit
import ctypes
import logging
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

from torch.futures import Future

from rltraining_trainer.transport.calls import ERROR, LOST, OK, REFUSED, Answer, Call, Parked
from rltraining_trainer.transport.errors import PeerLost, TransportError
from rltraining_trainer.transport.payload import Payload, Unreadable
from rltraining_trainer.transport.torch_rpc import Agent, Worker, require_guarded, require_reachable

Handler: TypeAlias = "Callable[[str, Payload], Payload | Parked]"
"""From the sender's name and the payload to the answer. Runs on an RPC thread: keep it short, park what must
wait.

The payload's tensors belong to the handler. What it raises reaches the caller as RemoteError.
"""

_WATCH_PERIOD = 0.25
_SETTLE_TIME = 1.0
_REFUSALS_PERIOD = 10.0
"""Seconds in which refused calls are logged once."""

_log = logging.getLogger(__name__)


class Endpoint:
    """This process' endpoint. At most one is started at a time in a process; it can be started again after a
    stop.

    With services it keeps itself reachable: TensorPipe closes its listener for ever when anything else than
    TensorPipe connects to it, or a caller dies while connecting. A watchdog sees that within 0.25 s, starts anew
    on another port and hands the new URL to `on_url`; callers get PeerLost and dial again. So it does when it has
    dialled as often as torch can: a learner dials each shard that comes, for weeks. Worse bytes (random
    ones, an HTTP request) end the process within C++, with ExitCode.FOREIGN_BYTES: that is healed by whoever restarts
    the process.
    """

    def __init__(
        self,
        name: str,
        token: str,
        services: Mapping[str, Handler] | None = None,
        *,
        threads: int = 4,
        timeout: float = 10.0,
        on_url: Callable[[str], None] | None = None,
        direct: bool = False,
    ) -> None:
        """
        Args:
            name: what callees see as the sender; the pod's name.
            token: the job's secret. Sent with every call, demanded of every caller.
            services: the handlers by name; none makes it a mere caller.
            threads: RPC threads, which run handlers and complete calls.
            timeout: seconds after which a call that says nothing else is given up.
            on_url: called with the URL at the start, and from the watchdog's thread with each later one.
            direct: tensors go from memory to memory between two endpoints that both say so and are processes of one user in
                one PID namespace: megabytes are 1.6 times as fast, a few kilobytes slower by a fifth. All others, those of
                two pods for instance, use the network, and where the kernel restricts ptrace this lets others of the same
                user read the process.
        """
        self.name = name
        self.incarnation = secrets.token_hex(8)
        """Tells this process start from others of the same name."""
        self.timeout = timeout
        self._token = token
        self._services = dict(services or {})
        self._threads = threads
        self._on_url = on_url or (lambda url: None)
        self._direct = direct
        self._agent: Agent | None = None
        self._gate = threading.Lock()  # held while the agent is started or stopped
        self._quit = threading.Event()
        self._lost = threading.Event()  # a call was, since memory was given back
        self._debts = _Debts()
        self._refused, self._refused_logged = 0, float("-inf")

    @property
    def serves(self) -> bool:
        """Whether it answers calls, or is a mere caller."""
        return bool(self._services)

    @property
    def url(self) -> str:
        """Where others can dial it; empty while stopped."""
        agent = self._agent
        return agent.url if agent else ""

    def start(self) -> None:
        """Begin to answer, and to be able to call.

        Raises:
            UnsupportedTorch: not the torch this was proven with.
            Unreachable: it has services, but no address that others can reach.
            Unguarded: others can reach it, and the gate is not compiled.
        """
        with self._gate:
            if self._agent is not None:
                raise TransportError(f"endpoint {self.name} is started already")
            self._quit = threading.Event()
            self._open()
        atexit.register(
            self.stop
        )  # without it the interpreter's exit aborts now and then, which is a failed pod
        if self._services:
            self._on_url(self.url)
            threading.Thread(target=self._watch, args=(self._quit,), name="rpc-watchdog", daemon=True).start()

    def stop(self) -> None:
        """End all connections. Calls under way, here and at callers, raise PeerLost. May be called twice."""
        self._quit.set()
        with self._gate:
            self._close()
        atexit.unregister(self.stop)

    def dial(self, url: str) -> Peer:
        """The peer at `url`. Returns at once and proves nothing: the first call connects."""
        agent = self._agent
        if agent is None:
            raise PeerLost(f"endpoint {self.name} is not started")
        return Peer(self.name, self.timeout, agent, agent.dial(url), url, self._lost)

    def _open(self) -> None:
        agent = Agent(
            self._answer, self._token, threads=self._threads, timeout=self.timeout, direct=self._direct
        )
        try:
            require_guarded(agent.url)
            if self._services:
                require_reachable(agent.url)
        except TransportError:
            agent.stop()
            raise
        self._debts.reopen()
        self._agent = agent

    def _close(self) -> None:
        agent, self._agent = self._agent, None
        if agent is not None:
            self._debts.settle_all((LOST, "the endpoint was stopped"))
            agent.stop()

    def _watch(self, quit_: threading.Event) -> None:
        while not quit_.wait(_WATCH_PERIOD):
            try:
                if self._heal(quit_):
                    self._on_url(self.url)
                if self._lost.is_set():
                    self._lost.clear()
                    _give_memory_back()
                self._log_refusals()
            except Exception:
                _log.exception("the RPC endpoint could not be opened again; trying on")

    def _heal(self, quit_: threading.Event) -> bool:
        """Whether there is a new URL."""
        with self._gate:
            agent = self._agent
            if quit_.is_set() or (agent is not None and agent.listening() and not agent.exhausted):
                return False
            if agent is not None and agent.exhausted:
                _log.warning("the RPC endpoint has dialled as often as it can; opening a new one")
            else:
                _log.warning("the RPC listener was closed by a stray connection; opening a new one")
            self._close()
            self._open()
            return True

    def _log_refusals(self) -> None:
        agent, now = self._agent, time.monotonic()
        if agent is None or now < self._refused_logged + _REFUSALS_PERIOD:
            return
        if (refused := agent.refused_calls()) > self._refused:
            _log.warning("refused calls without the job's token: %d so far", refused)
            self._refused, self._refused_logged = refused, now

    def _answer(self, request: Any) -> Future:
        """Every call to this process comes through here, on an RPC thread."""
        future: Future = Future()
        answer = self._handle(request)
        if isinstance(answer, Parked):
            self._debts.owe(answer, future)
        else:
            future.set_result(answer)
        return future

    def _handle(self, request: Any) -> Answer | Parked:
        if isinstance(request, Unreadable):
            _log.warning("refused a call: %s", request)
            return (REFUSED, str(request))
        try:
            service, sender, payload = request
        except (TypeError, ValueError):
            return (REFUSED, "this is not a call")
        handler = self._services.get(service)
        if handler is None:
            return (ERROR, f"there is no service {service!r} here, only {sorted(self._services)}")
        try:
            result = handler(sender, payload)
        except Exception as error:
            _log.exception("service %s failed for %s", service, sender)
            return (ERROR, f"{service}: {type(error).__name__}: {error}")
        return result if isinstance(result, Parked) else (OK, result)


class Peer:
    """One incarnation of another process. After PeerLost it is of no more use: discover and dial again."""

    def __init__(
        self,
        name: str,
        timeout: float,
        agent: Agent,
        worker: Worker,
        url: str,
        lost: threading.Event,
    ) -> None:
        self.url = url
        self._lost = lost
        self._name = name
        self._timeout = timeout
        self._agent = agent
        self._worker = worker

    def call(self, service: str, payload: Payload, *, timeout: float | None = None) -> Call:
        """Send and return at once. The payload's tensors are not copied: leave them alone until the call is
        done.

        Errors of the connection are raised by the call's `result`; TypeError here if `payload` cannot be
        sent.
        """
        seconds = self._timeout if timeout is None else timeout
        call = Call(self.url, seconds)
        try:
            future = self._agent.send(self._worker, (service, self._name, payload), seconds)
        except (PeerLost, RuntimeError) as error:
            call.settle((LOST, str(error)))
        else:
            future.add_done_callback(partial(self._finish, call))
        return call

    def _finish(self, call: Call, future: Future) -> None:
        call.finish(future)
        if call.lost:
            self._lost.set()


class _Debts:
    """The answers that are parked. All must be given before the agent ends, because torch then frees what
    they use.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._owed: set[Parked] = set()
        self._closed: Answer | None = None

    def owe(self, parked: Parked, future: Future) -> None:
        with self._changed:
            self._owed.add(parked)
            closed = self._closed
        parked.attach(partial(self._pay, parked, future))
        if closed:
            parked.settle(closed)

    def settle_all(self, answer: Answer) -> None:
        """Give this answer to all that wait, now and until `reopen`, and wait for those who are just giving
        theirs.
        """
        with self._changed:
            self._closed = answer
            owed = list(self._owed)
        for parked in owed:
            parked.settle(answer)
        with self._changed:
            self._changed.wait_for(lambda: not self._owed, timeout=_SETTLE_TIME)

    def reopen(self) -> None:
        with self._changed:
            self._closed = None

    def _pay(self, parked: Parked, future: Future, answer: Answer) -> None:
        try:
            future.set_result(answer)  # packs and sends, on this thread
        finally:
            with self._changed:
                self._owed.discard(parked)
                self._changed.notify_all()


def _give_memory_back() -> None:
    """To the system, what is free. torch keeps a little of each broken connection for ever, and between those pieces lies
    what was on its way, megabytes for each peer that dies, which glibc does not use again."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's own
    if trim is not None:
        trim(0)
