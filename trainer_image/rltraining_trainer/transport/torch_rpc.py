"""The only file that knows torch.distributed.rpc: one agent per process, alone in its group.

torch's own group membership does not survive a ``kill -9``, so no process joins a group with others. Each
starts an agent with a group of one; a server publishes the agent's URL; a caller adds that URL to its own
agent under a fresh name and id. This uses private names of torch, hence the pinned version and
`require_supported_torch`.

Only ``uv`` + ``basic`` are switched on, and ``cma`` for those who ask: the default's shared-memory reactor
spins, a whole core per idle process.

The port speaks torch's protocol to anybody, so three things keep strangers out. Every message begins with a key made
from the job's token, which is compared before anything else of it is read. The compiled gate (gate.cpp) refuses all other
types of messages, TorchScript builtins (``aten::…``) among them, which torch would serve. What comes before messages cannot
be guarded: one stray TCP connection closes the listener (see `Agent.listening`), and foreign bytes end the process inside
TensorPipe, which the gate turns into ExitCode.FOREIGN_BYTES. So a NetworkPolicy has to keep strangers from the port, and
no probe may ever point at it.
"""

from __future__ import annotations

import hashlib
import hmac
import itertools
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import torch
import torch.distributed.autograd
import torch.distributed.rpc
from torch import Tensor
from torch.futures import Future

from rltraining_trainer.transport import gate
from rltraining_trainer.transport.calls import REFUSAL
from rltraining_trainer.transport.errors import (
    PeerLost,
    TransportError,
    Unguarded,
    Unreachable,
    UnsupportedTorch,
)
from rltraining_trainer.transport.payload import Payload, Unreadable, pack, unpack

SUPPORTED_TORCH = "2.13"

dist: Any = torch.distributed  # Any, because what is private there has no types
rpc: Any = torch.distributed.rpc
dist_autograd: Any = torch.distributed.autograd
_PRIVATE_NAMES = (
    (rpc, "TensorPipeAgent"),
    (rpc.api, "_init_rpc_states"),
    (rpc.api, "_invoke_rpc_python_udf"),
    (rpc.internal, "serialize"),
    (rpc.internal, "deserialize"),
    (rpc.internal, "_run_function"),
    (dist_autograd, "_init"),
)
_NAME = "self"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")  # without it, cma fails rather than stands back
_MOST_DIALS = 2**15 - 2  # ids are int16 and never used twice in an agent's life

Worker: TypeAlias = Any
"""torch's handle of a peer: a WorkerInfo."""
Answer: TypeAlias = Callable[[Any], Future]
"""From a request, or the `Unreadable` that came instead, to the future of what goes back. Never raises."""


def require_supported_torch() -> None:
    """Raises `UnsupportedTorch` unless this is a torch whose private names are the ones used here."""
    version = torch.__version__
    if version.split("+")[0].rsplit(".", 1)[0] != SUPPORTED_TORCH:
        raise UnsupportedTorch(
            f"torch {version} is installed, but the transport is proven with torch {SUPPORTED_TORCH} only: "
            f"install torch=={SUPPORTED_TORCH}.*"
        )
    missing = [f"{owner.__name__}.{name}" for owner, name in _PRIVATE_NAMES if not hasattr(owner, name)]
    if missing:
        raise UnsupportedTorch(
            f"this build of torch {version} lacks {', '.join(missing)}: install the official wheel"
        )


class Agent:
    """This process' torch RPC agent, from `start` to `stop`. At most one at a time in a process."""

    def __init__(self, answer: Answer, token: str, *, threads: int, timeout: float, direct: bool) -> None:
        """Starts listening. `timeout` (seconds) holds for calls that give none; `threads` run the answers; `direct`: see
        Endpoint."""
        require_supported_torch()
        # torch would not start a second agent, and wait five minutes for its address.
        if rpc.api._is_current_rpc_agent_set():
            raise TransportError("this process has an endpoint already: stop it before you start another one")
        self._keys = Keys(token)
        _speak_payloads(answer, self._keys)
        options = rpc.TensorPipeRpcBackendOptions(
            init_method="none://",
            rpc_timeout=timeout,
            num_worker_threads=threads,
            _transports=["uv"],
            _channels=["cma", "basic"] if direct and _BOOT_ID.exists() else ["basic"],
        )
        self._store = dist.HashStore()
        dist_autograd._init(0)
        # The 1 makes it a static group, whose membership map is locked (in a dynamic one it is not: torch
        # 2.13).
        self._gate = gate.load()
        if self._gate is None:
            self._agent = rpc.TensorPipeAgent(self._store, _NAME, 0, 1, options, {}, [])
        else:
            gate.end_in_order(self._gate)
            self._agent = self._gate.make_agent(self._store, _NAME, options, self._keys.call, REFUSAL)
        rpc.api._init_rpc_states(self._agent)
        self.url: str = self._store.get(f"addrs/{_NAME}").decode()
        self._ids = itertools.count(1)
        self.exhausted = False
        """It can dial nobody any more."""
        self._lock = threading.Lock()
        self._stopped = False
        self._listener = _find_listener(_port(self.url))

    def dial(self, url: str) -> Worker:
        """Make `url` callable. Connects with the first call, so it costs and proves nothing."""
        with self._lock:
            number = next(self._ids)  # fresh each time: torch keeps a broken pipe under its id for ever
            if number > _MOST_DIALS:
                self.exhausted = True
                raise PeerLost(f"this endpoint has dialled {_MOST_DIALS} times: stop and start it")
            peer = rpc.WorkerInfo(f"peer{number}", number)
            self._store.set(f"addrs/{peer.name}", url)
            self._agent._update_group_membership(peer, [], {}, True)
        return peer

    def send(self, peer: Worker, request: Payload, timeout: float) -> Any:
        """torch's future of the answer. Raises PeerLost when this agent was stopped."""
        data, tensors = pack(request)
        data = self._keys.call + data
        with self._lock:  # torch would send with the process' next agent, whose ids begin anew
            if self._stopped:
                raise PeerLost("this endpoint was started anew since it dialled: dial again")
            return rpc.api._invoke_rpc_python_udf(peer, data, tensors, timeout, True)

    def listening(self) -> bool:
        """False once TensorPipe has closed the listener, which one TCP connection that says nothing brings
        about.

        The process lives on, open connections too, but nobody can dial it again.
        """
        return _listens(self._listener, _port(self.url))

    def refused_calls(self) -> int:
        """How many calls this process has refused so far because they lacked the key."""
        return self._keys.refused + (self._gate.refused_calls() if self._gate is not None else 0)

    def stop(self) -> None:
        """Ends all connections and waits for running answers. Calls under way fail on both sides.

        The futures of all answers must be done before: torch keeps a bare pointer to the agent in them.
        """
        with self._lock:
            self._stopped = True
        rpc.shutdown(graceful=False)


def require_reachable(url: str) -> None:
    """Raises `Unreachable` if `url` is this machine's loopback and nobody asked for that."""
    host = _host(url)
    if _is_loopback(host) and os.environ.get("TP_SOCKET_IFNAME") != "lo":
        raise Unreachable(
            f"the RPC endpoint got the address {host}, which no other machine can reach: "
            "set TP_SOCKET_IFNAME to the network interface (eth0 in a pod), or to lo if all processes run on this machine"
        )


def require_guarded(url: str) -> None:
    """Raises `Unguarded` if other machines can reach `url` and there is no compiled gate."""
    if gate.load() is None and not _is_loopback(_host(url)):
        raise Unguarded(
            f"the RPC port at {_host(url)} would serve strangers, since the gate is not compiled: "
            "install g++ where the image is built, and run `python -m rltraining_trainer.transport.gate --package`"
        )


def unguarded() -> str | None:
    """A sentence for users if this process has no compiled gate."""
    if gate.load() is not None:
        return None
    return (
        "other users of this machine can read your files through this run's RPC ports: "
        "install g++ and run `python -m rltraining_trainer.transport.gate` once"
    )


class Keys:
    """What calls and answers begin with, made from the token; from neither can the token be found, or the other key."""

    def __init__(self, token: str) -> None:
        self.call, self.answer = (
            hmac.digest(token.encode(), use, hashlib.sha256) for use in (b"call", b"answer")
        )
        self.refused = 0
        """Messages without a key."""

    def cut(self, data: bytes) -> bytes:
        """What follows the key. Raises PermissionError, which torch answers with, if there is none."""
        key = data[: len(self.call)]
        if hmac.compare_digest(key, self.call) or hmac.compare_digest(key, self.answer):
            return data[len(self.call) :]
        self.refused += 1
        raise PermissionError(REFUSAL)


def _speak_payloads(answer: Answer, keys: Keys) -> None:
    """Replace torch's codec and call: C++ looks these three up by name when an agent starts."""

    def deserialize(data: bytes, tensors: list[Tensor]) -> Any:
        content = keys.cut(data)
        try:
            return unpack(content, tensors)
        except Unreadable as error:
            return error

    def serialize(value: Any) -> tuple[bytes, list[Tensor]]:
        try:
            data, tensors = pack(value)
        except TypeError as error:  # a handler's answer, or a stranger's call in a mode that is not ours
            data, tensors = pack(("error", str(error)))
        return keys.answer + data, tensors

    rpc.internal.deserialize = deserialize
    rpc.internal.serialize = serialize
    rpc.internal._run_function = answer


def _host(url: str) -> str:
    return url.split("://", 1)[1].rsplit(":", 1)[0].strip("[]")


def _is_loopback(host: str) -> bool:
    return host.startswith("127.") or host == "::1"


def _port(url: str) -> int:
    return int(url.rsplit(":", 1)[1])


def _find_listener(port: int) -> int:
    """The file descriptor of this process that listens on `port`; -1 if there is none."""
    descriptors = (int(entry.name) for entry in Path("/dev/fd").iterdir())
    return next((fd for fd in descriptors if _listens(fd, port)), -1)


def _listens(descriptor: int, port: int) -> bool:
    if descriptor < 0:
        return False
    try:
        borrowed = socket.socket(fileno=descriptor)
    except OSError:
        return False
    try:
        accepts = borrowed.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        return bool(accepts) and borrowed.getsockname()[1] == port
    except (OSError, IndexError):
        return False
    finally:
        borrowed.detach()  # it is TensorPipe's to close
