"""The connections of an encrypted job, as the network sees them."""

from __future__ import annotations

import base64
import json
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from jobs import Job, Team, every, example, listening, processes_of
from rltraining_api.contract import HTTP_PORT, TLS_PORT

from tests.local_kubernetes.network import NODE_ADDRESS

pytestmark = pytest.mark.timeout(300)

ETH_P_ALL, ETH_P_IP, TCP = 3, 0x0800, 6


class Capture:
    """Payloads of TCP at the network interfaces of pods, between pairs of addresses and ports."""

    def __init__(self, pods: Iterable[str]) -> None:
        self._ended = threading.Event()
        self.payloads: dict[tuple[str, int, str, int], bytearray] = {}
        self._threads = [
            threading.Thread(target=self._read, args=(interface(pod),), daemon=True) for pod in pods
        ]
        for thread in self._threads:
            thread.start()

    def _read(self, name: str) -> None:
        packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        packets.bind((name, 0))
        packets.settimeout(0.2)
        while not self._ended.is_set():
            try:
                frame = packets.recv(1 << 16)
            except TimeoutError:
                continue
            if struct.unpack_from("!H", frame, 12)[0] != ETH_P_IP or frame[23] != TCP:
                continue
            packet = frame[14 : 14 + struct.unpack_from("!H", frame, 16)[0]]
            segment = packet[4 * (packet[0] & 15) :]
            payload = segment[4 * (segment[12] >> 4) :]
            if payload:
                source, target = socket.inet_ntoa(packet[12:16]), socket.inet_ntoa(packet[16:20])
                ports = struct.unpack_from("!HH", segment)
                self.payloads.setdefault((source, ports[0], target, ports[1]), bytearray()).extend(payload)
        packets.close()

    def end(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()


def interface(pod: str) -> str:
    """The node's end of a pod's network interface."""
    (process, *_) = processes_of(pod)
    container = Path("/proc", str(process.pid), "root")
    return socket.if_indextoname(int((container / "sys/class/net/eth0/iflink").read_text()))


@contextmanager
def captured(pods: Iterable[str]) -> Iterator[Capture]:
    capture = Capture(pods)
    try:
        yield capture
    finally:
        capture.end()


@pytest.mark.at_once
def test_only_tls_passes_between_the_pods_and_the_operator_of_an_encrypted_job(team: Team) -> None:
    """Two learners that sum gradients, and samplers, one of which is replaced during the capture."""
    team.cluster.need_local("it reads the packets of a bridge")
    spec = example(
        "cartpole-ppo",
        learner={"replicas": 2},
        sampler={"replicas": 2},
        stop={"environmentSteps": 10**12},
        encryption="TLS",
        **team.gentle("encrypted"),
    )
    with team.job("encrypted", spec) as job:
        job.until_ready("2/2", "2/2")
        job.until_steps()
        with captured(["encrypted-learner-0", "encrypted-learner-1"]) as capture:
            team.kubectl("delete", "pod", "encrypted-sampler-1")
            job.until(lambda status: status["sampler"]["restarts"] == 1, "replaced")
            job.until_ready("2/2", "2/2")
            job.until_steps()
            addresses = {pod["status"]["podIP"] for pod in job.pods().values()}
        _check(capture, addresses, _token(team, job))
        _strangers_do_no_harm(job)
        # Its tunnel may die: the connections are opened again.
        tunnel = next(
            p
            for p in processes_of("encrypted-learner-0")
            if "rltraining_trainer.tunnel.process" in p.cmdline()
        )
        tunnel.kill()
        job.until_steps()
        job.until_steps()
        job.patch({"stop": {"environmentSteps": 1}})
        status = job.until_phase("Succeeded")
        assert status["failures"] == 0
        assert status["learner"]["restarts"] == 0
        # The samplers may be deleted before they end by themselves.
        phases = {name: pod["status"]["phase"] for name, pod in job.pods().items() if "learner" in name}
        assert set(phases.values()) == {"Succeeded"}, phases


def _token(team: Team, job: Job) -> str:
    (secret,) = [
        secret
        for secret in json.loads(team.kubectl("get", "secrets", "-o", "json"))["items"]
        if secret["metadata"]["name"].startswith(f"{job.name}-token-")
    ]
    return base64.b64decode(secret["data"]["token"]).decode()


def _check(capture: Capture, addresses: set[str], token: str) -> None:
    """Checks the payloads: TLS between the pods and from the operator, and probes of the kubelet, without the token."""
    sizes: Counter[str] = Counter()
    for (source, source_port, target, target_port), payload in capture.payloads.items():
        if not {source, target} & addresses:
            continue  # of another job
        assert token.encode() not in payload, (source, source_port, target, target_port)
        if TLS_PORT in (source_port, target_port):
            kind = "between pods" if {source, target} <= addresses else "operator"
        elif HTTP_PORT in (source_port, target_port) and NODE_ADDRESS in (source, target):
            kind = "probes"
        else:
            kind = f"{source}:{source_port} to {target}:{target_port}"
        sizes[kind] += len(payload)
    expected = {"between pods", "operator", "probes"}
    # DNS over TCP, and whatever is not between members, may appear: no member speaks plainly to another one.
    assert expected <= set(sizes), sizes
    plain = [kind for kind in set(sizes) - expected if sum(address in kind for address in addresses) == 2]
    assert not plain, sizes


def _strangers_do_no_harm(job: Job) -> None:
    """Sends foreign bytes to each port on which torch listens in the learner, which would end a learner without TLS."""
    address = job.pods()["encrypted-learner-0"]["status"]["podIP"]
    (learner, *_) = processes_of("encrypted-learner-0")
    ports = listening(learner.pid, address)
    assert ports
    for port in ports:
        for _ in range(3):
            with socket.create_connection((address, port), timeout=5) as stranger:
                stranger.sendall(b"GET / HTTP/1.0\r\n\r\n")
                stranger.settimeout(5)
                with suppress(ConnectionResetError):
                    assert not stranger.recv(1)
    job.until_steps()
    for _ in every(0.1, 1):
        assert job.status["learner"]["restarts"] == 0
