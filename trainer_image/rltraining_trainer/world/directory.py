"""The addresses of members.

The addresses of learners and replay pods are known in advance. A sampler announces its address to
learner 0 when it starts, and again after its address or learner 0 changes. A member that needs the
address of a sampler asks learner 0 once, and caches the answer until a call fails. So frequent
calls do not pass through learner 0.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from rltraining_api.names import parse_pod_name, pod_name

from rltraining_trainer.roles.context import Context
from rltraining_trainer.transport import (
    Backoff,
    DeferredReply,
    Endpoint,
    Handler,
    Payload,
    Peer,
    PeerLost,
    Stopped,
    TransportError,
    discover,
)

_LOG = logging.getLogger(__name__)

HOLD_SECONDS = 30.0
"""How long learner 0 may delay the answer to an announcement: its machine may have disappeared."""
_PAUSE = 0.1
"""Seconds between two searches for a member that was not found."""


class Registry:
    """Learner 0's table of announced members, and whether the run is done."""

    def __init__(self) -> None:
        self.urls: dict[str, str] = {}
        """Addresses by the members' names."""
        self._lock = threading.Lock()
        self._waiting: dict[str, DeferredReply] = {}
        self._done = False

    @property
    def services(self) -> Mapping[str, Handler]:
        return {"announce": self._announce, "find": self._find}

    def finish(self) -> None:
        """Reports the end of the run to all announced members, also to later ones."""
        with self._lock:
            self._done = True
            waiting, self._waiting = self._waiting, {}
        for deferred in waiting.values():
            deferred.resolve(True)

    def _announce(self, sender: str, payload: Any) -> Payload | DeferredReply:
        """Answers ``(url, wait)`` with whether the run is done. ``wait`` delays the answer until then."""
        url, wait = payload
        deferred = DeferredReply()
        with self._lock:
            self.urls[sender] = str(url)
            before = self._waiting.pop(sender, None)
            done = self._done
            if wait and not done:
                self._waiting[sender] = deferred
        if before is not None:
            before.resolve(done)
        return deferred if wait and not done else done

    def _find(self, sender: str, payload: Any) -> Payload:
        """Answers names with the known addresses by name."""
        return {name: self.urls[name] for name in payload if name in self.urls}


class Directory:
    """Peers by the names of members. ``peer`` and ``lost`` do not block and are thread-safe."""

    def __init__(self, context: Context, endpoint: Endpoint, on_done: Callable[[], None]) -> None:
        """``on_done`` is called in another thread when learner 0 reports the end of the run."""
        self.attached = False
        """Whether learner 0 has this member's address."""
        self._context, self._endpoint, self._on_done = context, endpoint, on_done
        self._job = context.job.metadata.name
        self._registry = Registry() if context.pod == pod_name(self._job, "learner", 0) else None
        self._peers: dict[str, Peer] = {}
        self._first_peer: Peer | None = None  # learner 0, while the connection works
        # Separate, because only the search for samplers needs learner 0.
        self._wanted_samplers: set[str] = set()
        self._wanted_others: set[str] = set()
        self._changed = threading.Condition()
        self._closing = threading.Event()

    @property
    def services(self) -> Mapping[str, Handler]:
        return self._registry.services if self._registry is not None else {}

    def start(self) -> None:
        """Starts the threads. The endpoint must have been started."""
        searches = (self._wanted_samplers, self._find), (self._wanted_others, self._discover_all)
        for search in searches:
            threading.Thread(target=self._search, args=search, name="directory", daemon=True).start()
        if self._registry is None:
            threading.Thread(target=self._announce, name="announce", daemon=True).start()
        else:
            self.attached = True

    def peer(self, name: str) -> Peer | None:
        """Returns the newest known incarnation of a member, or None and starts a search for it."""
        with self._changed:
            peer = self._peers.get(name)
            if peer is None:
                match parse_pod_name(self._job, name):
                    case "sampler", _:
                        self._wanted_samplers.add(name)
                    case _:
                        self._wanted_others.add(name)
                self._changed.notify_all()
        return peer

    def lost(self, name: str, peer: Peer) -> None:
        """Forgets ``peer`` after a lost call, so that the member is searched again."""
        with self._changed:
            if self._peers.get(name) is peer:
                del self._peers[name]

    def finish(self) -> None:
        """Reports the end of the run, on learner 0."""
        if self._registry is not None:
            self._registry.finish()

    def close(self) -> None:
        self._closing.set()
        with self._changed:
            self._changed.notify_all()

    def _search(self, wanted: set[str], look_up: Callable[[list[str]], dict[str, str]]) -> None:
        """Looks up the ``wanted`` members until this process ends."""
        while not self._closing.is_set():
            with self._changed:
                self._changed.wait_for(lambda: wanted or self._closing.is_set())
                names = sorted(wanted)
                wanted.clear()
            try:
                urls = look_up(names)
                peers = {name: self._endpoint.dial(url) for name, url in urls.items()}
            except TransportError as error:
                _LOG.debug("not found yet: %s: %s", ", ".join(names), error)
                peers = {}
            with self._changed:
                self._peers |= peers
            if len(peers) < len(names):
                self._closing.wait(_PAUSE)

    def _discover_all(self, names: list[str]) -> dict[str, str]:
        """Returns the addresses of the learners and replay pods that are found."""
        urls: dict[str, str] = {}
        for name in names:
            match parse_pod_name(self._job, name):
                case role, index:
                    base = (self._context.learners if role == "learner" else self._context.replays)[index]
                    try:
                        urls[name] = self._discover(base)
                    except PeerLost as error:
                        _LOG.debug("%s is not there yet: %s", name, error)
        return urls

    def _find(self, samplers: list[str]) -> dict[str, str]:
        """Returns the addresses of the samplers that learner 0 knows."""
        if self._registry is not None:
            return {name: self._registry.urls[name] for name in samplers if name in self._registry.urls}
        first = self._first()
        try:
            found: Any = first.call("find", samplers).result(self._closing)
        except PeerLost:
            self._forget(first)
            raise
        return dict(found)

    def _announce(self) -> None:
        """Announces this member until the run is done.

        If learner 0 dies, the connection of the delayed answer breaks. The loop announces again.
        """
        backoff = Backoff()
        while not self._closing.is_set():
            first, known = None, False
            try:
                first, url = self._first(), self._endpoint.url
                if not url:
                    raise PeerLost("this member's endpoint is being reopened")
                done: Any = first.call("announce", (url, False)).result(self._closing)
                self.attached = True
                backoff.reset()
                if known := not done:
                    call = first.call("announce", (url, True), timeout=HOLD_SECONDS)
                    done = call.result(self._closing)
            except Stopped:
                return
            except TransportError as error:
                # After an announcement, a failed call is a timeout or a lost learner: try again.
                if not known:
                    _LOG.debug("learner 0 is not there yet: %s", error)
                    self._forget(first)
                    backoff.wait(self._closing)
                continue
            if done:
                self._on_done()
                return

    def _first(self) -> Peer:
        """Returns the peer of learner 0.

        Reuses the connection, since each connection takes descriptors of both processes.
        """
        url = self._discover(self._context.learners[0])
        with self._changed:
            if self._first_peer is None or self._first_peer.url != url:
                self._first_peer = self._endpoint.dial(url)
            return self._first_peer

    def _forget(self, first: Peer | None) -> None:
        """Drops the connection to learner 0 after a lost call."""
        with self._changed:
            if self._first_peer is first:
                self._first_peer = None

    def _discover(self, base: str) -> str:
        token, tls_port = self._context.token, self._context.tls_port
        return str(discover(base, token, stopping=self._closing, tls_port=tls_port)["url"])
