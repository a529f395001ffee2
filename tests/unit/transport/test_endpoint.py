"""Calls and their answers in one process. tests/integration covers the effects of other processes."""

from __future__ import annotations

import os
import socket
import threading
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from rltraining_trainer.transport import (
    DeferredReply,
    Endpoint,
    Payload,
    PeerLost,
    Refused,
    RemoteError,
    Stopped,
    TransportError,
    Unguarded,
    Unreachable,
    UnsupportedTorch,
    gate,
    torch_rpc,
)
from rltraining_trainer.transport.calls import Call
from rltraining_trainer.transport.payload import Opened, pack
from torch.futures import Future

ROOT = Path(__file__).parents[3]
Serve = Callable[..., Endpoint]


def echo(sender: str, payload: Payload) -> Payload:
    return {"sender": sender, "payload": payload}


def test_an_answer_comes_back_with_its_tensors(serve: Serve) -> None:
    endpoint = serve({"echo": echo})
    peer = endpoint.dial(endpoint.url)

    answer = peer.call("echo", {"x": torch.arange(4), "state": (torch.ones(2), None)}).result()

    assert isinstance(answer, dict)
    assert answer["sender"] == "job-member-0"
    assert answer["payload"]["x"].tolist() == [0, 1, 2, 3]
    assert answer["payload"]["state"][0].tolist() == [1.0, 1.0]


def test_bytes_are_counted_in_both_directions_and_over_a_restart(serve: Serve) -> None:
    endpoint = serve({"half": lambda sender, payload: torch.zeros(500_000)})
    for _ in range(2):
        assert endpoint.dial(endpoint.url).call("half", torch.zeros(1_000_000)).result() is not None
        endpoint.stop()
        endpoint.start()

    # This endpoint sends and receives both the call and its answer. Each has some bytes besides its tensor.
    assert endpoint.traffic.received == endpoint.traffic.sent
    assert 0 < endpoint.traffic.sent - 2 * 6_000_000 < 1000


def fail(sender: str, payload: Payload) -> Payload:
    raise KeyError("no such shard")


@pytest.mark.parametrize(
    ("service", "message"),
    [
        ("fail", "fail: KeyError: 'no such shard'"),
        ("bytes", "a bytes cannot be sent"),
        ("pull", r"no service 'pull' here, only \['bytes', 'fail'\]"),
    ],
)
def test_what_goes_wrong_in_a_handler_reaches_the_caller_as_text(
    serve: Serve, service: str, message: str
) -> None:
    endpoint = serve({"fail": fail, "bytes": lambda sender, payload: b"raw"})  # type: ignore[dict-item, return-value]

    with pytest.raises(RemoteError, match=message):
        endpoint.dial(endpoint.url).call(service, None).result()


@pytest.mark.parametrize("token", ["", "Secret", "secret ", "größer"])
def test_another_token_is_refused(serve: Serve, monkeypatch: pytest.MonkeyPatch, token: str) -> None:
    endpoint = serve({"echo": echo})
    peer = endpoint.dial(endpoint.url)
    assert endpoint._agent is not None
    monkeypatch.setattr(endpoint._agent, "_keys", torch_rpc.Keys(token))

    with pytest.raises(Refused, match="the token is wrong"):
        peer.call("echo", 1).result()
    assert endpoint.traffic.received == 0, "only messages of the job count"


@pytest.mark.parametrize(
    "forged",
    [
        pytest.param(("ok", "forged weights"), id="of a SCRIPT_RET message, in which torch looks for no key"),
        pytest.param(Opened(("ok", "forged weights"), is_call=True), id="with the key that the call had"),
    ],
)
def test_an_answer_needs_its_own_key(forged: object) -> None:
    future: Future = Future()
    future.set_result(forged)
    call = Call("uv://10.0.0.7:1", timeout=1.0)

    call.finish(future)

    with pytest.raises(PeerLost, match="not one of ours: it answered a message without the key"):
        call.result()


def test_without_the_gate_a_call_without_the_key_is_not_unpickled(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "load", lambda: None)
    endpoint = serve({"echo": echo})
    peer = endpoint.dial(endpoint.url)
    assert peer.call("echo", 1).result() == {"sender": "job-member-0", "payload": 1}
    read: list[bytes] = []
    monkeypatch.setattr(torch_rpc, "unpack", lambda data, tensors: read.append(data))
    agent = endpoint._agent
    assert agent is not None

    for message in (b"", agent._keys.call[:-1], bytes(32) + b"N.", b"\x80\x05N."):
        future = torch_rpc.rpc.api._invoke_rpc_python_udf(peer._worker, message, [], 5.0, True)
        with pytest.raises(RuntimeError, match="refused: the token is wrong"):
            future.wait()

    assert not read
    assert agent.refused_calls() >= 4


def test_without_the_gate_there_are_only_local_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "load", object)
    torch_rpc.require_guarded("uv://10.0.0.7:1")
    assert torch_rpc.unguarded() is None

    monkeypatch.setattr(gate, "load", lambda: None)
    torch_rpc.require_guarded("uv://127.0.0.1:1")
    torch_rpc.require_guarded("uv://[::1]:1")
    with pytest.raises(Unguarded, match="the gate is not compiled"):
        torch_rpc.require_guarded("uv://10.0.0.7:1")
    assert "install g++" in (torch_rpc.unguarded() or "")


def test_a_parked_answer_is_given_by_another_thread(serve: Serve) -> None:
    deferred: list[DeferredReply] = []
    arrived = threading.Event()

    def park(sender: str, payload: Payload) -> DeferredReply:
        deferred.append(DeferredReply())
        arrived.set()
        return deferred[-1]

    endpoint = serve({"park": park, "echo": echo}, threads=1)
    peer = endpoint.dial(endpoint.url)
    call = peer.call("park", None)
    assert arrived.wait(30)

    peer.call("echo", "the only thread is free meanwhile").result()
    assert not call.done()
    deferred[0].resolve(torch.ones(3))
    deferred[0].fail("only the first answer counts")

    answer = call.result()
    assert isinstance(answer, torch.Tensor)
    assert call.done()


def test_a_parked_answer_may_be_there_before_the_handler_returns(serve: Serve) -> None:
    def park(sender: str, payload: Payload) -> DeferredReply:
        deferred = DeferredReply()
        deferred.resolve("early") if payload else deferred.fail("refused early")
        return deferred

    endpoint = serve({"park": park})
    peer = endpoint.dial(endpoint.url)

    assert peer.call("park", True).result() == "early"
    with pytest.raises(RemoteError, match="refused early"):
        peer.call("park", False).result()


def test_stopping_ends_parked_calls_and_an_answer_given_afterwards_is_ignored(serve: Serve) -> None:
    deferred = DeferredReply()
    arrived = threading.Event()

    def park(sender: str, payload: Payload) -> DeferredReply:
        arrived.set()
        return deferred

    endpoint = serve({"park": park})
    call = endpoint.dial(endpoint.url).call("park", None, timeout=60)
    assert arrived.wait(30)

    endpoint.stop()
    with pytest.raises(PeerLost, match=r"^(?!.*in time)"):
        call.result()
    deferred.resolve("too late")


def test_waiting_ends_when_asked_to_stop(serve: Serve) -> None:
    endpoint = serve({"park": lambda sender, payload: DeferredReply()})
    call = endpoint.dial(endpoint.url).call("park", None, timeout=600)
    stopping = threading.Event()
    threading.Timer(0.05, stopping.set).start()

    with pytest.raises(Stopped):
        call.result(stopping)


def test_a_silent_peer_is_lost_after_the_time_out(serve: Serve) -> None:
    endpoint = serve({"park": lambda sender, payload: DeferredReply()})

    with pytest.raises(PeerLost, match="time"):
        endpoint.dial(endpoint.url).call("park", None, timeout=0.1).result()


def test_nobody_at_the_address_is_peer_lost(serve: Serve) -> None:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    endpoint = serve()

    with pytest.raises(PeerLost, match="connection refused"):
        endpoint.dial(f"uv://127.0.0.1:{port}").call("echo", 1).result()


def test_a_peer_that_had_no_url_when_it_reported_is_lost(serve: Serve) -> None:
    """A sampler announces its shard like this while its endpoint reopens. torch would raise ValueError in the learner."""
    with pytest.raises(PeerLost, match="no address"):
        serve().dial("").call("echo", 1).result()


def test_a_peer_of_before_a_restart_is_lost(serve: Serve) -> None:
    endpoint = serve({"echo": echo})
    peer = endpoint.dial(endpoint.url)
    incarnation = endpoint.incarnation
    with pytest.raises(TransportError, match="started already"):
        endpoint.start()

    endpoint.stop()
    endpoint.stop()
    assert endpoint.url == ""
    with pytest.raises(PeerLost, match="not started"):
        endpoint.dial("uv://127.0.0.1:1")
    endpoint.start()

    with pytest.raises(PeerLost, match="dial again"):
        peer.call("echo", 1).result()
    assert endpoint.dial(endpoint.url).call("echo", 1).result()
    assert endpoint.incarnation == incarnation


def next_url(endpoint: Endpoint, before: str) -> str:
    """Waits until an endpoint has reopened, and returns its new URL."""
    until = time.monotonic() + 30
    while (url := endpoint.url) in ("", before):
        assert time.monotonic() < until, f"it is still at {before}"
        time.sleep(0.01)
    return url


def test_after_a_stray_connection_there_is_a_new_url(serve: Serve) -> None:
    endpoint = serve({"echo": echo})
    before = endpoint.url
    assert before
    socket.create_connection(("127.0.0.1", int(before.rsplit(":", 1)[1]))).close()

    assert endpoint.dial(next_url(endpoint, before)).call("echo", 1).result()


def test_an_endpoint_that_has_dialled_as_often_as_torch_can_opens_anew(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A learner dials each sampler's shard, and samplers join and leave for weeks."""
    monkeypatch.setattr(torch_rpc, "_MOST_DIALS", 3)
    endpoint = serve({"echo": echo})
    before = endpoint.url
    for _ in range(3):
        endpoint.dial(before)
    with pytest.raises(PeerLost, match="dialled 3 times"):
        endpoint.dial(before)

    assert endpoint.dial(next_url(endpoint, before)).call("echo", 1).result()


def test_reconnecting_leaks_nothing(serve: Serve) -> None:
    endpoint = serve({"echo": echo})

    def reconnect() -> tuple[int, int]:
        endpoint.stop()
        endpoint.start()
        endpoint.dial(endpoint.url).call("echo", torch.ones(10)).result()
        return len(list(Path("/proc/self/fd").iterdir())), len(list(Path("/proc/self/task").iterdir()))

    before = reconnect()
    after = max(reconnect() for _ in range(10))

    assert after[0] <= before[0] + 2
    assert after[1] <= before[1] + 2


def test_an_address_nobody_can_reach_is_not_published(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TP_SOCKET_IFNAME", "no-such-interface")  # torch falls back to loopback
    endpoint = Endpoint("job-learner-0", "secret", {"echo": echo})

    with pytest.raises(Unreachable, match="set TP_SOCKET_IFNAME to the network interface"):
        endpoint.start()
    assert endpoint.url == ""


@pytest.mark.parametrize("version", ["1.13.1", "2.7.1", "2.16.0", "2.130.0", "3.0.0a0+git1234567"])
def test_another_torch_is_refused(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(torch, "__version__", version)

    with pytest.raises(UnsupportedTorch, match=r"install 'torch>=2\.8,<2\.16'"):
        Endpoint("job-learner-0", "secret").start()


def test_the_distribution_requires_the_supported_versions_of_torch() -> None:
    project = tomllib.loads((ROOT / "trainer_image" / "pyproject.toml").read_text())["project"]

    assert f"torch{torch_rpc.torch_requirement()}" in project["dependencies"]


def test_a_torch_without_the_private_names_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch_rpc.rpc.api, "_invoke_rpc_python_udf")

    with pytest.raises(UnsupportedTorch, match=r"lacks torch\.distributed\.rpc\.api\._invoke_rpc_python_udf"):
        torch_rpc.require_supported_torch()


def test_warnings_of_lost_clients_are_switched_off() -> None:
    assert os.environ["TORCH_CPP_LOG_LEVEL"] == "ERROR"


def test_without_the_gate_the_key_of_answers_opens_no_call(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "load", lambda: None)
    called: list[str] = []
    endpoint = serve({"echo": lambda sender, payload: called.append(sender)})
    agent, peer = endpoint._agent, endpoint.dial(endpoint.url)
    assert agent is not None
    data, _ = pack(("echo", "stranger", None))

    future = torch_rpc.rpc.api._invoke_rpc_python_udf(peer._worker, agent._keys.answer + data, [], 5.0, True)

    with pytest.raises(RuntimeError, match="refused: the token is wrong"):
        future.wait()
    assert not called
