"""Processes that tests disturb.

`main` forks them from a process that has imported torch, because the import takes seconds. `main`
reads ``{"role", "fifo", "arguments"}`` or ``{"reap": pid}`` from stdin, one JSON document per line.
It answers each with one line: the new member's pid, or the exit status. At the end of stdin, `main`
and its members end.
"""

from __future__ import annotations

import functools
import gc
import json
import os
import signal
import struct
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import raw_call
import torch
from rltraining_api.contract import RENDEZVOUS_PATH
from rltraining_trainer.transport import (
    Backoff,
    DeferredReply,
    Endpoint,
    MemberServer,
    Payload,
    PeerLost,
    RemoteError,
    Stopped,
    TransportError,
    discover,
    on_stop_signal,
)
from torch.distributed import rpc

TOKEN = "the token of this job"
Say = Callable[[str], None]


def learner(say: Say, port: int, direct: bool = False) -> None:
    """Echoes, parks and releases, until SIGTERM.

    Other members discover it on `port`; 0 chooses a free port, which the learner prints.
    """
    deferred: list[DeferredReply] = []

    def park(sender: str, payload: Payload) -> DeferredReply:
        deferred.append(DeferredReply())
        return deferred[-1]

    def release(sender: str, payload: Payload) -> Payload:
        while deferred:
            deferred.pop().resolve(payload)
        return None

    stopping = threading.Event()
    on_stop_signal(stopping.set)
    services = {"echo": lambda sender, payload: payload, "park": park, "release": release}
    endpoint = Endpoint("learner", TOKEN, services, direct=direct)
    endpoint.start()

    def rendezvous() -> dict[str, Any] | None:
        url = endpoint.url
        return {"url": url, "incarnation": endpoint.incarnation, "modelVersion": 0} if url else None

    server = MemberServer(port, TOKEN, ready=lambda: True, documents={RENDEZVOUS_PATH: rendezvous})
    server.start()
    say(str(server.port))
    stopping.wait()


def idler(say: Say) -> None:
    """Opens an endpoint and idles; on SIGTERM prints the CPU time used, in seconds."""
    stopping = threading.Event()
    on_stop_signal(stopping.set)
    Endpoint("idler", TOKEN, {"echo": lambda sender, payload: payload}).start()
    before = sum(os.times()[:2])
    say("open")
    stopping.wait()
    say(str(sum(os.times()[:2]) - before))


def crasher(say: Say) -> None:
    """Opens its endpoint twice, and aborts."""
    endpoint = Endpoint("crasher", TOKEN)
    for _ in range(2):
        endpoint.start()
        endpoint.stop()
    os.abort()


def caller(say: Say, url: str, token: str = TOKEN) -> None:
    """Makes one deferred call, and prints how it ended. SIGTERM ends it."""
    stopping = threading.Event()
    on_stop_signal(stopping.set)
    endpoint = Endpoint("caller", token)
    endpoint.start()
    call = endpoint.dial(url).call("park", torch.ones(10_000), timeout=600)
    say("calling")
    try:
        say(f"answer {call.result(stopping)}")
    except TransportError as error:
        say(f"{type(error).__name__}: {error}")
    endpoint.stop()


def sampler(say: Say, base_url: str, name: str) -> None:
    """Pushes unrolls until SIGTERM, and rediscovers a lost learner.

    Prints each acknowledged sequence number.
    """
    stopping = threading.Event()
    on_stop_signal(stopping.set)
    endpoint = Endpoint(name, TOKEN, threads=2)
    backoff, sequence = Backoff(cap=0.3), 1
    while not stopping.is_set():
        try:
            endpoint.stop()
            endpoint.start()
            peer = endpoint.dial(discover(base_url, TOKEN, stopping=stopping)["url"])
            while True:
                unroll = {"reward": torch.full((16, 64), float(sequence))}
                push = {
                    "incarnation": endpoint.incarnation,
                    "sequence": sequence,
                    "version": -1,
                    "item": unroll,
                }
                peer.call("push", push).result(stopping)
                say(str(sequence))
                sequence += 1
                backoff.reset()
        except PeerLost:
            backoff.wait(stopping)
        except Stopped:
            break
    endpoint.stop()


HASH_BOMB = b"\x80\x05}(t" + b"2\x86" * 64 + b"Ns."
"""A dictionary with a key that takes exponential time to hash.

The key is 64 nested tuples, each with two references to the previous tuple.
"""
MEMO_BOMB = b"\x80\x05Nr" + struct.pack("<I", 200_000_000) + b"."
"""A pickle of 8 bytes that makes the unpickler allocate 1.6 GB."""


def plain_torch(url: str) -> rpc.WorkerInfo:
    """Starts torch's own agent, as a stranger would; returns the worker at `url`."""
    options = rpc.TensorPipeRpcBackendOptions(
        init_method="none://", rpc_timeout=60, _transports=["uv"], _channels=["basic"]
    )
    store = torch.distributed.HashStore()
    torch.distributed.autograd._init(0)
    agent = rpc.TensorPipeAgent(store, "stranger", 0, 1, options, {}, [])
    rpc.api._init_rpc_states(agent)
    victim = rpc.WorkerInfo("victim", 1)
    store.set("addrs/victim", url)
    agent._update_group_membership(victim, [], {}, True)
    return victim


def table_sender(say: Say, url: str, tensors: int) -> None:
    """Sends a message of `tensors` tensors with torch's own RPC, without the token. Prints the result."""
    table = [torch.ones(1) for _ in range(tensors)]  # distinct ones: of equal ones a table has only one
    try:
        sent = rpc.api._invoke_rpc_python_udf(plain_torch(url), b"", table, 60.0, True)
        say(f"answer {sent.wait()}")
    except RuntimeError as error:
        say(f"raised {error}".splitlines()[0])
    os._exit(0)


def stranger(say: Say, url: str, trace: str, secret: str, raw: str) -> None:
    """Attacks `url` with torch's own RPC and without the token. Prints the results as a JSON list.

    `trace`: a file to create. `secret`: a file to read. `raw`: the compiled `raw_call`.
    """
    save = "aten::save(t item, str filename) -> ()"
    call_operator = raw_call.load(raw).call_operator
    victim = plain_torch(url)

    def builtin(name: str, *arguments: Any) -> object:
        return rpc.api._invoke_rpc_builtin(victim, name, 5.0, *arguments).wait()

    def call(message: bytes) -> object:
        return rpc.api._invoke_rpc_python_udf(victim, message, [], 5.0, True).wait()

    touch = f"touch {trace}"
    statement = f"__import__('os').system({touch!r})"
    attempts: list[Callable[[], object]] = [
        lambda: rpc.rpc_async(victim, os.system, (touch,)).wait(),
        lambda: rpc.rpc_sync(victim, os.system, (touch,)),
        lambda: rpc.rpc_sync(victim, eval, (statement,)),
        lambda: rpc.rpc_sync(victim, exec, (statement,)),
        lambda: rpc.rpc_sync(victim, functools.partial(os.system, touch)),
        lambda: rpc.rpc_sync(victim, os.getpid),
        lambda: rpc.remote(victim, os.system, (touch,)).to_here(),
        lambda: builtin("aten::neg", torch.ones(2)),
        lambda: builtin("aten::from_file", secret, False, Path(secret).stat().st_size // 4),
        lambda: call_operator(victim.id, victim.name, save, ["a line", trace]),
        lambda: call(HASH_BOMB),
        lambda: call(MEMO_BOMB),
        lambda: call(bytes(32) + HASH_BOMB),
    ]
    outcomes = []
    for attempt in attempts:
        try:
            outcomes.append(repr(attempt()))
        except (RuntimeError, RemoteError, AttributeError, TypeError) as error:
            outcomes.append(f"raised {error}")
    say(json.dumps(outcomes))
    rpc.shutdown(graceful=False)


ROLES: dict[str, Callable[..., None]] = {
    role.__name__: role for role in (learner, idler, caller, crasher, sampler, stranger, table_sender)
}


def become(role: str, fifo: str, arguments: list[Any]) -> None:
    """Runs the role in the new member, and exits as a Python program does."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # stdout carries the answers of `main`, and gloo of torch 2.8 prints there
    with Path(fifo).open("w", buffering=1) as out:
        ROLES[role](lambda line: print(line, file=out, flush=True), *arguments)


def main() -> None:
    gc.freeze()  # a member's end would otherwise look through all of torch's objects: a second
    for line in sys.stdin:
        order = json.loads(line)
        if "reap" in order:
            answer = os.waitstatus_to_exitcode(os.waitpid(order["reap"], 0)[1])
        else:
            answer = os.fork()
            if answer == 0:
                become(**order)
                return
        print(json.dumps(answer), flush=True)
    os.killpg(0, signal.SIGKILL)
