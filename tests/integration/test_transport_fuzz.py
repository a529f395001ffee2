"""Mutated messages and bytes at a member's RPC port: nothing is executed, memory stays, and the member can be called again."""

from __future__ import annotations

import contextlib
import os
import pickle
import random
import signal
import socket
import time
from pathlib import Path

import pytest
from mutated import mutated
from resident_memory import resident
from rltraining_api.contract import ExitCode
from rltraining_trainer.transport import Endpoint, PeerLost, discover, torch_rpc
from rltraining_trainer.transport.payload import pack
from soak import SOAK
from test_transport import address, find
from transport_members import HASH_BOMB, MEMO_BOMB, TOKEN
from transport_processes import HANG_SECONDS, Start

MESSAGES = 5_000 * SOAK
STREAM_SECONDS = 600.0 if SOAK > 1 else 2.0
AT_ONCE = 50
"""Concurrent calls."""
LONG_BINPUT = b"r"
"""Makes the unpickler allocate the size that its four bytes announce. Only clients with the token can send it."""


class Touch:
    """Creates a file when it is unpickled by Python's own unpickler."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> object:
        return os.system, (f"touch {self.path}",)


def test_mutated_calls_execute_nothing_and_take_no_memory(
    start: Start, endpoint: Endpoint, tmp_path: Path
) -> None:
    learner, trace, rng = start("learner", 0), tmp_path / "executed", random.Random(7)
    peer = find(endpoint, f"http://127.0.0.1:{learner.hear()}")
    keys = torch_rpc.Keys(TOKEN)
    call = pack(("echo", "test", {"values": [1, 2.5, "three", None], "nested": ({}, [True])}))[0]
    attack = pickle.dumps(("echo", "test", Touch(trace)))
    prefixes = (keys.call, keys.answer, bytes(32), b"", keys.call[:-1])
    calls = [(prefix, content) for prefix in prefixes for content in (call, attack)]
    calls += [(prefix, bomb) for prefix in prefixes[1:] for bomb in (HASH_BOMB, MEMO_BOMB)]

    def send() -> object:
        prefix, content = rng.choice(calls)
        content = mutated(content, rng)
        if prefix == keys.call:
            content = content.replace(LONG_BINPUT, b"")
        else:
            prefix = mutated(prefix, rng)
        return torch_rpc.rpc.api._invoke_rpc_python_udf(peer._worker, prefix + content, [], 60.0, True)

    before, answered, refused = 0, 0, 0
    for i in range(0, MESSAGES, AT_ONCE):
        for future in [send() for _ in range(AT_ONCE)]:
            try:
                future.wait()  # type: ignore[attr-defined]
                answered += 1
            except RuntimeError as error:
                if "refused: the token is wrong" not in str(error):
                    raise
                refused += 1
        if i == MESSAGES // 10:
            before = resident(learner.pid)
    assert peer.call("echo", "hello").result() == "hello"
    after = resident(learner.pid)
    print(f"{refused} messages refused, {answered} read; memory {before >> 20} MiB, then {after >> 20} MiB")
    assert not trace.exists()
    assert min(answered, refused) > MESSAGES // 20
    assert after < 1.1 * before


def test_bytes_that_are_no_messages_end_a_member_at_most_in_order(start: Start, endpoint: Endpoint) -> None:
    learner, rng = start("learner", 0), random.Random(11)
    port = int(learner.hear())
    base_url = f"http://127.0.0.1:{port}"
    streams = [
        b"GET / HTTP/1.1\r\nHost: learner\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),  # TLS
        bytes(4096),
        (24).to_bytes(8, "little") + bytes(24),  # as TensorPipe frames its packets
        b"SSH-2.0-OpenSSH_9.6\r\n",
    ]

    sent, ends, longest, until = 0, 0, 0.0, time.monotonic() + STREAM_SECONDS
    url = find(endpoint, base_url).url
    while time.monotonic() < until:
        # Attack.
        with socket.create_connection(address(url)) as stranger:
            stranger.sendall(mutated(rng.choice(streams), rng))
            stranger.settimeout(0.1)
            with contextlib.suppress(OSError):
                stranger.recv(1)
        began, sent, url = time.monotonic(), sent + 1, ""
        # Restart the member if it has ended, until it can be called.
        while not url:
            assert time.monotonic() < began + HANG_SECONDS, "it hangs"
            if learner.ended(0.02):
                assert learner.wait() == ExitCode.FOREIGN_BYTES
                ends += 1
                learner.close()
                learner = start("learner", port)
                endpoint.stop()  # frees the memory of the lost connection
                endpoint.start()
            with contextlib.suppress(PeerLost):
                peer = endpoint.dial(discover(base_url, TOKEN)["url"])
                peer.call("echo", None, timeout=1.0).result()
                url = peer.url
        longest = max(longest, time.monotonic() - began)
    print(f"{sent} streams, {ends} ends; no call was possible for {longest:.2f} s at most")
    assert sent > 1


@pytest.mark.parametrize("length", [2**23, 2**30, 2**34, 2**40])
def test_the_length_of_a_frame_takes_no_memory(start: Start, endpoint: Endpoint, length: int) -> None:
    learner = start("learner", 0)
    peer = find(endpoint, f"http://127.0.0.1:{learner.hear()}")
    before = resident(learner.pid)
    with socket.create_connection(address(peer.url)) as stranger:
        stranger.sendall(length.to_bytes(8, "little"))
        # The process ends in order, before it has allocated any memory.
        while not learner.ended(0.005):
            assert resident(learner.pid) < before + 2**22
    assert learner.wait() == ExitCode.FOREIGN_BYTES


def test_a_crash_elsewhere_ends_a_member_by_its_signal(start: Start) -> None:
    """This holds also after the endpoint was reopened, as after each lost connection."""
    crasher = start("crasher")
    assert crasher.wait() == -signal.SIGABRT
