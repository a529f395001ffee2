"""Wraps torch.distributed.rpc, which no other file uses: one agent per process, alone in its group.

torch's own group membership does not survive a ``kill -9``, so no process joins a group with
others. Each process starts an agent with a group of one. A server publishes its agent's URL, and a
caller adds that URL to its agent under a new name and id. This uses private names of torch,
therefore the module has `SUPPORTED_TORCH` and `require_supported_torch`.

Only ``uv`` and ``basic`` are enabled, and ``cma`` on request. The shared-memory reactor of torch's
default busy-waits and uses a full core per idle process.

torch serves every client that reaches the port, so three mechanisms keep strangers out. First,
every message begins with a key derived from the job's token, which is compared before the rest of
the message is read. Second, the compiled gate (gate.cpp) rejects all other message types that torch
would serve, such as TorchScript builtins (``aten::…``). An answer is accepted only with the key of
answers, because torch also returns values of message types that carry no key (`Opened`). Nothing
protects the bytes that torch reads before a message's type and key, such as the table of tensors.
One stray TCP connection closes the listener (see `Agent.listening`), and foreign bytes end the
process inside TensorPipe, which the gate turns into ExitCode.FOREIGN_BYTES. Therefore, third, a
NetworkPolicy must keep strangers away from the port, and no probe may ever point at the port.
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
from rltraining_trainer.transport.payload import Opened, Payload, Unreadable, pack, unpack
from rltraining_trainer.transport.traffic import Traffic

SUPPORTED_TORCH = (2, 8), (2, 15)
"""The oldest and the newest minor version of torch that the transport is tested with:
``python -m tests.torch_versions --all``. The distribution requires the same range."""

dist: Any = torch.distributed  # Any, because private names have no types
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
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")  # if it is missing, cma raises an error
_MOST_DIALS = 2**15 - 2  # ids are int16, and an agent uses each id once

Worker: TypeAlias = Any
"""torch's handle of a peer, a WorkerInfo."""
Respond: TypeAlias = Callable[[Any], Future]
"""Maps a request or `Unreadable` to the future of the answer. Never raises."""


def require_supported_torch() -> None:
    """Raises `UnsupportedTorch` unless torch is a tested version with the private names used here."""
    version = torch.__version__
    major, minor = (int(number) for number in version.split(".")[:2])
    oldest, newest = SUPPORTED_TORCH
    if not oldest <= (major, minor) <= newest:
        tested = f"{oldest[0]}.{oldest[1]} to {newest[0]}.{newest[1]}"
        raise UnsupportedTorch(
            f"torch {version} is installed, but the transport is tested with torch {tested} only: "
            f"install 'torch{torch_requirement()}'"
        )
    missing = [f"{owner.__name__}.{name}" for owner, name in _PRIVATE_NAMES if not hasattr(owner, name)]
    if missing:
        raise UnsupportedTorch(
            f"this build of torch {version} lacks {', '.join(missing)}: install the official wheel"
        )


def torch_requirement() -> str:
    """Returns the supported versions as in a requirement of a Python distribution."""
    oldest, newest = SUPPORTED_TORCH
    return f">={oldest[0]}.{oldest[1]},<{newest[0]}.{newest[1] + 1}"


class Agent:
    """The torch RPC agent of this process, until `stop`. A process has at most one at a time."""

    def __init__(
        self, respond: Respond, token: str, traffic: Traffic, *, threads: int, timeout: float, direct: bool
    ) -> None:
        """Starts listening, and counts messages in ``traffic``. ``Endpoint`` describes the other arguments."""
        require_supported_torch()
        # torch would not start a second agent, and would wait five minutes for its address.
        if rpc.api._is_current_rpc_agent_set():
            raise TransportError("this process has an endpoint already: stop it before you start another one")
        self._keys, self._traffic = Keys(token), traffic
        _speak_payloads(respond, self._keys, traffic)
        options = rpc.TensorPipeRpcBackendOptions(
            init_method="none://",
            rpc_timeout=timeout,
            num_worker_threads=threads,
            _transports=["uv"],
            _channels=["cma", "basic"] if direct and _BOOT_ID.exists() else ["basic"],
        )
        self._store = dist.HashStore()
        dist_autograd._init(0)
        # The 1 makes the group static. Only a static group locks its membership map (torch 2.8 to 2.15).
        self._gate = gate.load()
        if self._gate is None:
            self._agent = rpc.TensorPipeAgent(self._store, _NAME, 0, 1, options, {}, [])
        else:
            gate.end_in_order(self._gate)
            self._agent = self._gate.make_agent(self._store, _NAME, options, self._keys.call, REFUSAL)
        rpc.api._init_rpc_states(self._agent)
        self.url: str = self._store.get(f"addrs/{_NAME}").decode()
        if self._gate is not None:
            self._gate.survive_deep_tables()
        self._ids = itertools.count(1)
        self.exhausted = False
        """Whether this agent has used up its ids and cannot dial any more."""
        self._lock = threading.Lock()
        self._stopped = False
        self._listener = _find_listener(_port(self.url))

    def dial(self, url: str) -> Worker:
        """Makes `url` callable. The first call connects."""
        with self._lock:
            number = next(self._ids)  # a new id, since torch keeps a broken pipe under its id
            if number > _MOST_DIALS:
                self.exhausted = True
                raise PeerLost(f"this endpoint has dialled {_MOST_DIALS} times: stop and start it")
            peer = rpc.WorkerInfo(f"peer{number}", number)
            self._store.set(f"addrs/{peer.name}", url)
            self._agent._update_group_membership(peer, [], {}, True)
        return peer

    def send(self, peer: Worker, request: Payload, timeout: float) -> Any:
        """Sends a request and returns torch's future. Raises PeerLost after `stop`."""
        data, tensors = pack(request)
        data = self._keys.call + data
        with self._lock:  # after `stop`, torch would send with the next agent, where ids start at 1 again
            if self._stopped:
                raise PeerLost("this endpoint was restarted since it dialled: dial again")
            self._traffic.on_sent(data, tensors)
            return rpc.api._invoke_rpc_python_udf(peer, data, tensors, timeout, True)

    def listening(self) -> bool:
        """Returns False once TensorPipe has closed the listener, for example after one silent TCP
        connection.

        The process and its open connections continue, but no peer can dial the process again.
        """
        return _listens(self._listener, _port(self.url))

    def refused_calls(self) -> int:
        """Returns the number of calls without the key that this process has refused so far."""
        return self._keys.refused + (self._gate.refused_calls() if self._gate is not None else 0)

    def stop(self) -> None:
        """Closes all connections and waits for running answers. Pending calls fail on both sides.

        The futures of all answers must be completed before, since torch keeps a raw pointer to the
        agent in them.
        """
        with self._lock:
            self._stopped = True
        rpc.shutdown(graceful=False)


def require_reachable(url: str) -> None:
    """Raises `Unreachable` if `url` is a loopback address, unless TP_SOCKET_IFNAME requests it."""
    host = host_of(url)
    if _is_loopback(host) and os.environ.get("TP_SOCKET_IFNAME") != "lo":
        raise Unreachable(
            f"the RPC endpoint got the address {host}, which no other machine can reach: "
            "set TP_SOCKET_IFNAME to the network interface (eth0 in a pod), or to lo if all processes run on this machine"
        )


def require_guarded(url: str) -> None:
    """Raises `Unguarded` if other machines can reach `url` and there is no compiled gate."""
    if gate.load() is None and not _is_loopback(host_of(url)):
        raise Unguarded(
            f"the RPC port at {host_of(url)} would serve any client, since the gate is not compiled: "
            "install g++ where the image is built, and run `python -m rltraining_trainer.transport.gate --package`"
        )


def unguarded() -> str | None:
    """Returns a warning for users if this process has no compiled gate, otherwise None."""
    if gate.load() is not None:
        return None
    return (
        "other users of this machine can read your files through this run's RPC ports: "
        "install g++ and run `python -m rltraining_trainer.transport.gate` once"
    )


class Keys:
    """The keys of calls and of answers. They are derived from the token and do not reveal it."""

    def __init__(self, token: str) -> None:
        self.call, self.answer = (
            hmac.digest(token.encode(), use, hashlib.sha256) for use in (b"call", b"answer")
        )
        self.refused = 0
        """Number of messages without a key."""

    def cut(self, data: bytes) -> tuple[bytes, bool]:
        """Strips the key from a message, and returns whether it is the key of calls.

        Raises PermissionError if there is no key. torch sends this error to the caller.
        """
        key, content = data[: len(self.call)], data[len(self.call) :]
        if (is_call := hmac.compare_digest(key, self.call)) or hmac.compare_digest(key, self.answer):
            return content, is_call
        self.refused += 1
        raise PermissionError(REFUSAL)


def _speak_payloads(respond: Respond, keys: Keys, traffic: Traffic) -> None:
    """Replaces torch's codec and function call, which C++ looks up when an agent starts."""

    def deserialize(data: bytes, tensors: list[Tensor]) -> Opened:
        content, is_call = keys.cut(data)
        traffic.on_received(data, tensors)
        try:
            return Opened(unpack(content, tensors), is_call)
        except Unreadable as error:
            return Opened(error, is_call)

    def run(request: Opened) -> Future:
        if not request.is_call:
            keys.refused += 1
            raise PermissionError(REFUSAL)
        return respond(request.content)

    def serialize(value: Any) -> tuple[bytes, list[Tensor]]:
        try:
            data, tensors = pack(value)
        except TypeError as error:  # a handler's answer, or a stranger's call in another mode of torch RPC
            data, tensors = pack(("error", str(error)))
        data = keys.answer + data
        traffic.on_sent(data, tensors)
        return data, tensors

    rpc.internal.deserialize = deserialize
    rpc.internal.serialize = serialize
    rpc.internal._run_function = run


def host_of(url: str) -> str:
    """Returns ``10.0.0.1`` for ``uv://10.0.0.1:4711``."""
    return url.split("://", 1)[1].rsplit(":", 1)[0].strip("[]")


def _is_loopback(host: str) -> bool:
    return host.startswith("127.") or host == "::1"


def _port(url: str) -> int:
    return int(url.rsplit(":", 1)[1])


def _find_listener(port: int) -> int:
    """Returns the file descriptor that listens on `port`, or -1."""
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
        borrowed.detach()  # TensorPipe owns the descriptor
