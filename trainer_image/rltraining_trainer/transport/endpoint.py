"""Connects a process to the other members of a job: an endpoint answers calls (`services`) and
calls peers (`dial`).

    learner                                          sampler
    endpoint = Endpoint(name, token, handlers)       endpoint = Endpoint(name, token)
    endpoint.start()                                 endpoint.start()
                                                     peer = endpoint.dial(discover(...)["url"])
                                                     peer.call("push", payload).result(stopping)

The callee keeps no state about its callers, so the death of a caller affects no other process. A
caller that gets PeerLost stops and starts its own endpoint (1 ms, and torch frees the broken
connection), discovers, and dials again.
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

from rltraining_trainer.transport.calls import ERROR, LOST, OK, REFUSED, Answer, Call, DeferredReply
from rltraining_trainer.transport.errors import PeerLost, TransportError
from rltraining_trainer.transport.payload import Payload, Unreadable
from rltraining_trainer.transport.torch_rpc import Agent, Worker, require_guarded, require_reachable
from rltraining_trainer.transport.traffic import Traffic

Handler: TypeAlias = "Callable[[str, Payload], Payload | DeferredReply]"
"""Maps the sender's name and the payload to the answer, or to a `DeferredReply` if it has to wait.

Runs on an RPC thread, so keep it short. The handler owns the payload's tensors. Its exceptions reach
the caller as RemoteError.
"""

_WATCH_SECONDS = 0.25
_SETTLE_SECONDS = 1.0
_REFUSALS_SECONDS = 10.0
"""Seconds between two log lines about refused calls."""

_log = logging.getLogger(__name__)


class Endpoint:
    """The endpoint of this process. At most one is started at a time. It can be started again.

    An endpoint with services keeps itself reachable. TensorPipe closes its listener permanently
    when any other program connects to it, or when a caller dies while connecting. A watchdog
    detects that within 0.25 s and restarts the endpoint on another port. Callers get PeerLost,
    discover the new URL and dial again. The watchdog does the same when torch allows no
    more dials, since a learner dials each new shard, for weeks. Other foreign bytes (random ones, an HTTP
    request) end the process within C++, with ExitCode.FOREIGN_BYTES, and the process has to be
    restarted.
    """

    def __init__(
        self,
        name: str,
        token: str,
        services: Mapping[str, Handler] | None = None,
        *,
        threads: int = 4,
        timeout: float = 10.0,
        direct: bool = False,
    ) -> None:
        """
        Args:
            name: The sender's name for callees, which is the pod's name.
            token: The job's secret. Every call carries a key derived from it, and every caller must
                have it.
            services: The handlers by name. Without any the endpoint only calls.
            threads: RPC threads, which run handlers and complete calls.
            timeout: Default time-out of a call in seconds.
            direct: Copies tensors from memory to memory between two endpoints that both set it, in
                processes of one user in one PID namespace. This is 1.6 times as fast for megabytes,
                and slower by a fifth for a few kilobytes. All other endpoints, such as those of two
                pods, use the network. Where the kernel restricts ptrace, this lets other processes of
                the same user read the process.
        """
        self.name = name
        self.incarnation = secrets.token_hex(8)
        """Distinguishes this start of the process from others of the same name."""
        self.timeout = timeout
        self.traffic = Traffic()
        """The bytes of all messages, also before a restart of the endpoint."""
        self._token = token
        self._services = dict(services or {})
        self._threads = threads
        self.direct = direct
        self._agent: Agent | None = None
        # Held while the agent is started or stopped.
        self._gate = threading.Lock()
        self._quit = threading.Event()
        # Set when a call is lost, until free memory is returned to the system.
        self._lost = threading.Event()
        self._replies = _DeferredReplies()
        self._refused, self._refused_logged = 0, float("-inf")

    def serve(self, services: Mapping[str, Handler]) -> None:
        """Adds services. An endpoint without services must not have been started."""
        self._services |= services

    @property
    def url(self) -> str:
        """The URL at which peers can dial this endpoint. Empty while stopped."""
        agent = self._agent
        return agent.url if agent else ""

    def start(self) -> None:
        """Starts to answer and enables calls.

        Raises:
            UnsupportedTorch: The installed torch is not a tested version.
            Unreachable: The endpoint has services, but no address that other machines can reach.
            Unguarded: Other machines can reach the endpoint, and the gate is not compiled.
        """
        with self._gate:
            if self._agent is not None:
                raise TransportError(f"endpoint {self.name} is started already")
            self._quit = threading.Event()
            self._open()
        atexit.register(self.stop)  # without it the interpreter sometimes aborts at exit, and the pod fails
        if self._services:
            threading.Thread(target=self._watch, args=(self._quit,), name="rpc-watchdog", daemon=True).start()

    def stop(self) -> None:
        """Closes all connections. Pending calls raise PeerLost. May be called twice."""
        self._quit.set()
        with self._gate:
            self._close()
        atexit.unregister(self.stop)

    def dial(self, url: str) -> Peer:
        """Returns the peer at `url`, without connecting: the first call connects.

        Raises PeerLost if `url` is empty: the peer's endpoint was stopped when it reported its URL.
        """
        if not url:
            raise PeerLost("the peer has no address: its endpoint is stopped")
        agent = self._agent
        if agent is None:
            raise PeerLost(f"endpoint {self.name} is not started")
        return Peer(self.name, self.timeout, agent, agent.dial(url), url, self._lost)

    def _open(self) -> None:
        agent = Agent(
            self._answer,
            self._token,
            self.traffic,
            threads=self._threads,
            timeout=self.timeout,
            direct=self.direct,
        )
        try:
            require_guarded(agent.url)
            if self._services:
                require_reachable(agent.url)
        except TransportError:
            agent.stop()
            raise
        self._replies.reopen()
        self._agent = agent

    def _close(self) -> None:
        agent, self._agent = self._agent, None
        if agent is not None:
            self._replies.settle_all((LOST, "the endpoint was stopped"))
            agent.stop()

    def _watch(self, quit_: threading.Event) -> None:
        while not quit_.wait(_WATCH_SECONDS):
            try:
                self._reopen_if_closed(quit_)
                if self._lost.is_set():
                    self._lost.clear()
                    _release_memory()
                self._log_refusals()
            except Exception:
                _log.exception("the RPC endpoint could not be reopened; retrying")

    def _reopen_if_closed(self, quit_: threading.Event) -> None:
        """Reopens a closed or exhausted endpoint, at a new URL."""
        with self._gate:
            agent = self._agent
            if quit_.is_set() or (agent is not None and agent.listening() and not agent.exhausted):
                return
            if agent is not None and agent.exhausted:
                _log.warning("the RPC endpoint has dialled as often as it can; opening a new one")
            else:
                _log.warning("the RPC listener was closed by a stray connection; opening a new one")
            self._close()
            self._open()

    def _log_refusals(self) -> None:
        agent, now = self._agent, time.monotonic()
        if agent is None or now < self._refused_logged + _REFUSALS_SECONDS:
            return
        if (refused := agent.refused_calls()) > self._refused:
            _log.warning("refused calls without the job's token: %d so far", refused)
            self._refused, self._refused_logged = refused, now

    def _answer(self, request: Any) -> Future:
        """Answers every call to this process, on an RPC thread."""
        future: Future = Future()
        answer = self._handle(request)
        if isinstance(answer, DeferredReply):
            self._replies.add(answer, future)
        else:
            future.set_result(answer)
        return future

    def _handle(self, request: Any) -> Answer | DeferredReply:
        """Calls the handler of a request, and converts its exceptions."""
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
        return result if isinstance(result, DeferredReply) else (OK, result)


class Peer:
    """One incarnation of another process. After PeerLost discover and dial again."""

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
        """Sends a call and returns immediately.

        The payload's tensors are not copied: do not modify them until the call is done.
        The call's `result` raises errors of the connection. Raises TypeError if `payload` cannot be
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


class _DeferredReplies:
    """The pending deferred replies.

    All must be sent before the agent stops, because torch then frees the memory that they use.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._pending: set[DeferredReply] = set()
        self._closed: Answer | None = None

    def add(self, reply: DeferredReply, future: Future) -> None:
        """Sends the reply through `future` as soon as it is given."""
        with self._changed:
            self._pending.add(reply)
            closed = self._closed
        reply.attach(partial(self._send, reply, future))
        if closed:
            reply.settle(closed)

    def settle_all(self, answer: Answer) -> None:
        """Settles all replies, now and until `reopen`, and waits until they are sent."""
        with self._changed:
            self._closed = answer
            pending = list(self._pending)
        for reply in pending:
            reply.settle(answer)
        with self._changed:
            self._changed.wait_for(lambda: not self._pending, timeout=_SETTLE_SECONDS)

    def reopen(self) -> None:
        with self._changed:
            self._closed = None

    def _send(self, reply: DeferredReply, future: Future, answer: Answer) -> None:
        try:
            # This packs and sends the answer on this thread.
            future.set_result(answer)
        finally:
            with self._changed:
                self._pending.discard(reply)
                self._changed.notify_all()


def _release_memory() -> None:
    """Returns free memory to the system.

    torch never frees a small part of each broken connection. These parts fragment the heap, so glibc
    does not reuse the freed buffers between them, which are megabytes for each dead peer.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # exists in glibc only
    if trim is not None:
        trim(0)
