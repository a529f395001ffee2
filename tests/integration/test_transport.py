"""Other processes connect to a listening process, leave, claim a false identity, die, freeze and send garbage."""

from __future__ import annotations

import contextlib
import random
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from resident_memory import resident
from rltraining_api.contract import RENDEZVOUS_PATH, ExitCode
from rltraining_trainer.dataflow import ModelServer, Source, TrajectoryQueue, TrajectoryServer
from rltraining_trainer.transport import (
    DeferredReply,
    Endpoint,
    MemberServer,
    Payload,
    Peer,
    PeerLost,
    discover,
)
from transport_members import TOKEN
from transport_processes import HANG_SECONDS, Start

NEVER = 10 * HANG_SECONDS
"""A time-out that would appear as a hang if it elapsed."""
DEATHS = 8


class Waiting:
    """This process as a learner with a full queue: every call to "park" is deferred."""

    def __init__(self) -> None:
        self.deferred: list[DeferredReply] = []
        self.arrived = threading.Semaphore(0)
        self.endpoint = Endpoint("test", TOKEN, {"park": self._park})
        self.endpoint.start()

    def _park(self, sender: str, payload: Payload) -> DeferredReply:
        self.deferred.append(DeferredReply())
        self.arrived.release()
        return self.deferred[-1]


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Waiting]:
    monkeypatch.setenv("TP_SOCKET_IFNAME", "lo")
    waiting = Waiting()
    yield waiting
    waiting.endpoint.stop()


def find(endpoint: Endpoint, base_url: str) -> Peer:
    """Returns a peer that answers, even if the learner's address changes meanwhile."""
    deadline = time.monotonic() + HANG_SECONDS
    while True:
        try:
            peer = endpoint.dial(discover(base_url, TOKEN)["url"])
            if peer.call("echo", "hello").result() == "hello":
                return peer
        except PeerLost:
            pass
        assert time.monotonic() < deadline, "the endpoint did not recover"
        time.sleep(0.02)


def address(url: str) -> tuple[str, int]:
    host, port = url.removeprefix("uv://").rsplit(":", 1)
    return host, int(port)


def test_the_death_of_a_callee_ends_the_call_at_once(start: Start, endpoint: Endpoint) -> None:
    learner = start("learner", 0)
    peer = find(endpoint, f"http://127.0.0.1:{learner.hear()}")
    call = peer.call("park", None, timeout=NEVER)
    peer.call("echo", None).result()

    learner.kill()
    with pytest.raises(PeerLost):
        call.result()
    with pytest.raises(PeerLost):
        peer.call("echo", None).result()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux copies from another process' memory")
@pytest.mark.parametrize(("here", "there"), [(True, True), (True, False), (False, True)])
def test_tensors_go_from_memory_to_memory_if_both_sides_wish_it(
    start: Start, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, here: bool, there: bool
) -> None:
    monkeypatch.setenv("TP_SOCKET_IFNAME", "lo")
    endpoint = Endpoint("test", TOKEN, direct=here)
    endpoint.start()
    request.addfinalizer(endpoint.stop)
    learner = start("learner", 0, there)
    peer = find(endpoint, f"http://127.0.0.1:{learner.hear()}")
    numbers = torch.arange(1_000_000)

    before = read_by_this_process()
    answer = peer.call("echo", numbers).result()
    read = read_by_this_process() - before

    assert torch.equal(answer, numbers)
    assert read < 100_000 if here and there else read >= 8_000_000

    call = peer.call("park", None, timeout=NEVER)
    for _ in range(3):  # which it dies in the middle of
        peer.call("echo", numbers)
    learner.kill()
    with pytest.raises(PeerLost):
        call.result()


def read_by_this_process() -> int:
    """Returns the number of bytes read from files and sockets."""
    return int(Path("/proc/self/io").read_text().split()[1])


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc keeps what was freed")
def test_what_the_dead_were_answering_takes_no_memory_for_ever(
    start: Start, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setenv("TP_SOCKET_IFNAME", "lo")
    endpoint = Endpoint("test", TOKEN, {"echo": lambda sender, payload: payload})
    endpoint.start()
    request.addfinalizer(endpoint.stop)
    answer = [
        torch.zeros(2**24, dtype=torch.uint8),
        torch.zeros(4, 10),
    ]  # like a batch, with its metadata

    def outlive_one() -> None:
        learner = start("learner", 0)
        peer = find(endpoint, f"http://127.0.0.1:{learner.hear()}")
        for _ in range(5):
            peer.call("echo", answer).result()
        calls = [peer.call("echo", answer) for _ in range(3)]
        calls[0].result()
        learner.kill()  # in the middle of the next answer
        for call in calls:
            with contextlib.suppress(PeerLost):
                call.result()

    outlive_one()
    before = resident()
    for _ in range(DEATHS):
        outlive_one()
    deadline = time.monotonic() + HANG_SECONDS
    while (grown := resident() - before) > 4 * 2**24 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert grown <= 4 * 2**24, "bytes"


def test_the_death_of_a_caller_concerns_nobody_else(start: Start, waiting: Waiting) -> None:
    first, second = start("caller", waiting.endpoint.url), start("caller", waiting.endpoint.url)
    assert waiting.arrived.acquire(timeout=HANG_SECONDS)
    assert waiting.arrived.acquire(timeout=HANG_SECONDS)

    first.kill()
    first.wait()
    for deferred in waiting.deferred:
        deferred.resolve("continue")

    assert second.hear() == "calling"
    assert second.hear() == "answer continue"
    assert second.wait() == 0


def test_a_frozen_peer_is_lost_after_the_time_out_and_found_again(start: Start, endpoint: Endpoint) -> None:
    learner = start("learner", 0)
    base_url = f"http://127.0.0.1:{learner.hear()}"
    peer = find(endpoint, base_url)

    learner.freeze()
    began = time.monotonic()
    with pytest.raises(PeerLost):
        peer.call("echo", None, timeout=0.5).result()
    assert time.monotonic() - began > 0.4
    with pytest.raises(PeerLost):
        discover(base_url, TOKEN, timeout=0.2)

    learner.kill(signal.SIGCONT)
    assert find(endpoint, base_url)


@pytest.mark.parametrize("rubbish", ["random", "HTTP", "zeros"])
def test_rubbish_is_healed_by_itself_or_by_a_restart(start: Start, endpoint: Endpoint, rubbish: str) -> None:
    content = {
        "random": random.Random(3).randbytes(4096),
        "HTTP": b"GET / HTTP/1.1\r\nHost: learner\r\n\r\n",
        "zeros": b"\0" * 4096,
    }[rubbish]
    learner = start("learner", 0)
    port = int(learner.hear())
    base_url = f"http://127.0.0.1:{port}"
    before = find(endpoint, base_url)

    with socket.create_connection(address(before.url)) as stranger:
        stranger.sendall(content)
        stranger.settimeout(5)
        with contextlib.suppress(OSError):
            stranger.recv(1)  # until it hangs up, dead or alive
    endings = [learner.wait()] if learner.ended() else []
    if endings:
        start("learner", port)

    assert endings in ([], [ExitCode.FOREIGN_BYTES])
    assert find(endpoint, base_url).url != before.url


def test_sigterm_is_answered_while_a_call_is_under_way(start: Start, waiting: Waiting) -> None:
    caller = start("caller", waiting.endpoint.url)
    assert caller.hear() == "calling"
    assert waiting.arrived.acquire(timeout=HANG_SECONDS)

    caller.kill(signal.SIGTERM)
    assert caller.hear().startswith("Stopped: ")
    assert caller.wait() == 0


def test_a_signal_at_any_moment_stops_a_process_once_and_for_all(start: Start) -> None:
    idlers = [start("idler") for _ in range(5)]
    for idler in idlers:
        assert idler.hear() == "open"
        idler.kill(signal.SIGTERM)
        idler.kill(signal.SIGINT)

    assert [idler.wait() for idler in idlers] == [0] * 5


def test_an_idle_endpoint_uses_no_processor_time(start: Start) -> None:
    idler = start("idler")
    assert idler.hear() == "open"
    time.sleep(1)  # the measured interval
    idler.kill(signal.SIGTERM)

    assert float(idler.hear()) < 0.1
    assert idler.wait() == 0


class Learner:
    """This process as a learner that receives unrolls."""

    def __init__(self, port: int = 0, state: dict[str, Any] | None = None) -> None:
        self.queue = TrajectoryQueue(2)
        if state is not None:  # before the first push
            self.queue.set_state(state)
        self.models = ModelServer()
        self.server = TrajectoryServer(self.queue, self.models)
        self.models.publish(torch.ones(5000))
        services = {"push": self.server.push, "pull": self.server.pull}
        self.endpoint = Endpoint("learner", TOKEN, services)
        self.http = MemberServer(
            port, TOKEN, ready=lambda: True, documents={RENDEZVOUS_PATH: self._rendezvous}
        )
        self.endpoint.start()
        self.http.start()
        self.used: list[Source] = []

    def _rendezvous(self) -> dict[str, Any] | None:
        url = self.endpoint.url
        return {"url": url, "incarnation": self.endpoint.incarnation, "modelVersion": 1} if url else None

    def use(self, count: int, sampler: str = "") -> None:
        """Takes unrolls until `count` are from this sampler, or from any if none is given."""
        while count > 0:
            trajectory = self.queue.get(HANG_SECONDS)
            assert trajectory is not None, "no unroll comes"
            assert trajectory.item["reward"][0, 0] == trajectory.source.sequence
            self.used.append(trajectory.source)
            count -= sampler in ("", trajectory.source.sender)

    def check(self) -> None:
        self.queue.check_valid()
        assert self.queue.counts().used == len(self.used) == len(set(self.used)), "an unroll was used twice"

    def stop(self) -> None:
        self.server.finish()
        self.endpoint.stop()
        self.http.stop()


@pytest.fixture
def learner(monkeypatch: pytest.MonkeyPatch) -> Iterator[Learner]:
    monkeypatch.setenv("TP_SOCKET_IFNAME", "lo")
    learner = Learner()
    yield learner
    learner.stop()


def test_killed_samplers_and_stray_connections_hold_nobody_up(start: Start, learner: Learner) -> None:
    base_url = f"http://127.0.0.1:{learner.http.port}"
    names = ["sampler-0", "sampler-1"]
    samplers = [start("sampler", base_url, name) for name in names]
    for round_ in range(6):
        for name in names:
            learner.use(5, name)
        victim = round_ % 2
        samplers[victim].kill()
        learner.use(5, names[1 - victim])  # while the killed sampler is down
        samplers[victim] = start("sampler", base_url, names[victim])
        if round_ % 3 == 2:
            socket.create_connection(address(learner.endpoint.url)).close()
    for name in names:
        learner.use(5, name)

    learner.check()
    assert len({source.incarnation for source in learner.used}) == 8, "one of them did not come back"


def test_samplers_find_a_restarted_learner_and_repeat_what_it_did_not_answer(
    start: Start, learner: Learner, request: pytest.FixtureRequest
) -> None:
    sampler = start("sampler", f"http://127.0.0.1:{learner.http.port}", "sampler-0")
    learner.use(20)
    port = learner.http.port
    learner.endpoint.stop()
    learner.http.stop()
    # Not before, since an unroll that arrives afterwards is missing in the counters.
    state = learner.queue.get_state()

    restarted = Learner(port, state)
    request.addfinalizer(restarted.stop)
    restarted.used = list(learner.used)
    restarted.use(20)

    restarted.check()
    sequences = [source.sequence for source in restarted.used]
    assert sequences == sorted(sequences)
    assert sequences[-1] > state["pushed"]
    missing = sequences[-1] - len(sequences)
    assert missing == restarted.queue.counts().dropped, (
        "what was queued when the learner died, and no more, is dropped"
    )
    sampler.kill(signal.SIGTERM)
    assert sampler.wait() == 0
