"""Calls and their answers, in one process. What other processes do to an endpoint: tests/integration."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from rltraining_trainer.transport import (
    Endpoint,
    Parked,
    Payload,
    PeerLost,
    Refused,
    RemoteError,
    Stopped,
    TransportError,
    Unreachable,
    UnsupportedTorch,
    torch_rpc,
)

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


def test_many_calls_are_under_way_at_once(serve: Serve) -> None:
    endpoint = serve({"echo": echo})
    peer = endpoint.dial(endpoint.url)

    calls = [peer.call("echo", number) for number in range(50)]

    assert [call.result()["payload"] for call in calls] == list(range(50))  # type: ignore[index, call-overload]


def test_a_handlers_exception_reaches_the_caller_as_text(serve: Serve) -> None:
    def fail(sender: str, payload: Payload) -> Payload:
        raise KeyError("no such shard")

    endpoint = serve({"fail": fail})

    with pytest.raises(RemoteError, match=r"fail: KeyError: 'no such shard'"):
        endpoint.dial(endpoint.url).call("fail", None).result()


def test_an_answer_that_cannot_be_sent_is_a_remote_error(serve: Serve) -> None:
    endpoint = serve({"bytes": lambda sender, payload: b"raw"})  # type: ignore[dict-item, return-value]

    with pytest.raises(RemoteError, match="a bytes cannot be sent"):
        endpoint.dial(endpoint.url).call("bytes", None).result()


def test_an_unknown_service_is_a_remote_error_that_names_the_known(serve: Serve) -> None:
    endpoint = serve({"echo": echo})

    with pytest.raises(RemoteError, match=r"no service 'pull' here, only \['echo'\]"):
        endpoint.dial(endpoint.url).call("pull", None).result()


@pytest.mark.parametrize("token", ["", "Secret", "secret ", "größer"])
def test_another_token_is_refused(serve: Serve, monkeypatch: pytest.MonkeyPatch, token: str) -> None:
    endpoint = serve({"echo": echo})
    peer = endpoint.dial(endpoint.url)
    monkeypatch.setattr(peer, "_caller", (token, "stranger"))

    with pytest.raises(Refused, match="the token is wrong"):
        peer.call("echo", 1).result()


def test_a_parked_answer_is_given_by_another_thread(serve: Serve) -> None:
    parked: list[Parked] = []
    arrived = threading.Event()

    def park(sender: str, payload: Payload) -> Parked:
        parked.append(Parked())
        arrived.set()
        return parked[-1]

    endpoint = serve({"park": park, "echo": echo}, threads=1)
    peer = endpoint.dial(endpoint.url)
    call = peer.call("park", None)
    assert arrived.wait(5)

    peer.call("echo", "the only thread is free meanwhile").result()
    assert not call.done()
    parked[0].resolve(torch.ones(3))
    parked[0].fail("only the first answer counts")

    answer = call.result()
    assert isinstance(answer, torch.Tensor)
    assert call.done()


@pytest.mark.parametrize(("answer", "outcome"), [("resolve", "later"), ("fail", RemoteError)])
def test_a_parked_answer_may_be_there_before_the_handler_returns(
    serve: Serve, answer: str, outcome: object
) -> None:
    def park(sender: str, payload: Payload) -> Parked:
        parked = Parked()
        getattr(parked, answer)("later")
        return parked

    endpoint = serve({"park": park})
    call = endpoint.dial(endpoint.url).call("park", None)

    if outcome == "later":
        assert call.result() == "later"
    else:
        with pytest.raises(RemoteError, match="later"):
            call.result()


def test_stopping_ends_parked_calls_and_an_answer_given_afterwards_is_ignored(serve: Serve) -> None:
    parked = Parked()
    arrived = threading.Event()

    def park(sender: str, payload: Payload) -> Parked:
        arrived.set()
        return parked

    endpoint = serve({"park": park})
    call = endpoint.dial(endpoint.url).call("park", None)
    assert arrived.wait(5)

    endpoint.stop()
    with pytest.raises(PeerLost):
        call.result(timeout=2)
    parked.resolve("too late")


def test_waiting_ends_at_once_when_asked_to_stop(serve: Serve) -> None:
    endpoint = serve({"park": lambda sender, payload: Parked()})
    call = endpoint.dial(endpoint.url).call("park", None)
    stopping = threading.Event()
    threading.Timer(0.05, stopping.set).start()

    began = time.monotonic()
    with pytest.raises(Stopped):
        call.result(stopping)
    assert time.monotonic() - began < 1


def test_a_silent_peer_is_lost_after_the_time_out(serve: Serve) -> None:
    endpoint = serve({"park": lambda sender, payload: Parked()})

    with pytest.raises(PeerLost, match="time"):
        endpoint.dial(endpoint.url).call("park", None, timeout=0.1).result()


def test_nobody_at_the_address_is_peer_lost(serve: Serve) -> None:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    endpoint = serve()

    with pytest.raises(PeerLost, match="connection refused"):
        endpoint.dial(f"uv://127.0.0.1:{port}").call("echo", 1).result()


def test_a_peer_of_before_a_restart_is_lost(serve: Serve) -> None:
    endpoint = serve({"echo": echo})
    peer = endpoint.dial(endpoint.url)
    incarnation = endpoint.incarnation

    endpoint.stop()
    assert endpoint.url == ""
    with pytest.raises(PeerLost, match="not started"):
        endpoint.dial("uv://127.0.0.1:1")
    endpoint.start()

    with pytest.raises(PeerLost, match="dial again"):
        peer.call("echo", 1).result()
    assert endpoint.dial(endpoint.url).call("echo", 1).result()
    assert endpoint.incarnation == incarnation


def test_a_stray_connection_is_healed_on_a_new_url(serve: Serve) -> None:
    urls: list[str] = []
    healed = threading.Event()

    def note(url: str) -> None:
        urls.append(url)
        if len(urls) == 2:
            healed.set()

    endpoint = serve({"echo": echo}, on_url=note)
    assert urls == [endpoint.url]
    socket.create_connection(("127.0.0.1", int(endpoint.url.rsplit(":", 1)[1]))).close()

    assert healed.wait(2)
    assert urls[1] == endpoint.url != urls[0]
    assert endpoint.dial(endpoint.url).call("echo", 1).result()


def test_who_has_dialled_as_often_as_torch_can_begins_anew(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A learner dials each sampler's shard, and samplers come and go for weeks."""
    monkeypatch.setattr(torch_rpc, "_MOST_DIALS", 3)
    urls: list[str] = []
    moved = threading.Event()

    def note(url: str) -> None:
        urls.append(url)
        if len(urls) == 2:
            moved.set()

    endpoint = serve({"echo": echo}, on_url=note)
    for _ in range(3):
        endpoint.dial(urls[0])
    with pytest.raises(PeerLost, match="dialled 3 times"):
        endpoint.dial(urls[0])

    assert moved.wait(5.0)
    assert endpoint.dial(endpoint.url).call("echo", 1).result()


def test_stop_may_come_twice_and_start_may_not(serve: Serve) -> None:
    endpoint = serve({"echo": echo})
    with pytest.raises(TransportError, match="started already"):
        endpoint.start()

    endpoint.stop()
    endpoint.stop()


def test_reconnecting_thirty_times_leaks_nothing(serve: Serve) -> None:
    endpoint = serve({"echo": echo})

    def reconnect() -> tuple[int, int]:
        endpoint.stop()
        endpoint.start()
        endpoint.dial(endpoint.url).call("echo", torch.ones(10)).result()
        return len(list(Path("/proc/self/fd").iterdir())), len(list(Path("/proc/self/task").iterdir()))

    before = reconnect()
    after = max(reconnect() for _ in range(30))

    assert after[0] <= before[0] + 2
    assert after[1] <= before[1] + 2


def test_an_address_nobody_can_reach_is_not_published(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TP_SOCKET_IFNAME", "no-such-interface")  # torch falls back to loopback
    endpoint = Endpoint("job-learner-0", "secret", {"echo": echo})

    with pytest.raises(Unreachable, match="set TP_SOCKET_IFNAME to the network interface"):
        endpoint.start()
    assert endpoint.url == ""


@pytest.mark.parametrize("version", ["2.12.1", "2.14.0+cpu", "3.0.0", "2.130.0"])
def test_another_torch_is_refused(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(torch, "__version__", version)

    with pytest.raises(UnsupportedTorch, match=r"install torch==2\.13\.\*"):
        Endpoint("job-learner-0", "secret").start()


def test_a_torch_without_the_private_names_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch_rpc.rpc.api, "_invoke_rpc_python_udf")

    with pytest.raises(UnsupportedTorch, match=r"lacks torch\.distributed\.rpc\.api\._invoke_rpc_python_udf"):
        torch_rpc.require_supported_torch()


def test_warnings_of_lost_clients_are_switched_off() -> None:
    assert os.environ["TORCH_CPP_LOG_LEVEL"] == "ERROR"
