"""Parts of the local cluster that need no process."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rltraining_operator.local.backoff import Backoff
from rltraining_operator.local.log_size import LOG_BYTES_MAX, shorten
from rltraining_operator.local.network import Ports, localize
from rltraining_operator.local.pod import LocalPod, left_out
from rltraining_operator.local.runtime import Command, Exit, Process, StartError
from rltraining_operator.local.status_file import StatusFile
from rltraining_operator.local.store import LocalStore, merge_patch
from rltraining_operator.local.volumes import MountError, Volumes
from rltraining_operator.local.watch import parse_quantity
from rltraining_operator.observe.pod_view import Pod


def test_backoff() -> None:
    backoff = Backoff()
    assert [backoff.after(1, "Error", 1) for _ in range(8)] == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert backoff.after(137, "Error", 1) == backoff.after(143, "Error", 1) == 0
    assert backoff.after(137, "Error", 0.9) == 0.5
    assert backoff.after(137, "OOMKilled", 1) == 30
    assert backoff.after(1, "Error", 61) == 0.5


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("512Mi", 512 << 20),
        ("1.5Gi", 3 << 29),
        ("2G", 2 * 10**9),
        ("100k", 10**5),
        ("1e3", 1000),
        (7, 7),
        ("", None),
    ],
)
def test_quantities(text: str, units: int | None) -> None:
    assert parse_quantity(text) == units


def test_what_a_local_cluster_cannot_do_is_said() -> None:
    trainer = {
        "name": "trainer",
        "env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"fieldRef": {}}}],
        "envFrom": [{"configMapRef": {"name": "x"}}],
    }
    volumes = [{"name": "output", "persistentVolumeClaim": {}}, {"name": "tmp", "emptyDir": {}}]
    spec = {
        "containers": [trainer, {"name": "proxy"}],
        "initContainers": [{"name": "fetch"}],
        "volumes": [*volumes, {"name": "data", "nfs": {}}],
    }
    assert list(left_out({"spec": spec})) == [
        "container proxy is not run: without a container runtime only the trainer is",
        "container fetch is not run: without a container runtime only the trainer is",
        "variable B of the trainer is empty: valueFrom needs a cluster",
        "envFrom of the trainer is left out: it needs a cluster",
        "volume data is an empty folder: its content exists only in a cluster",
    ]


def test_a_port_is_the_pods_alone_and_stays_the_same() -> None:
    ports = Ports()
    port = ports.of("a")
    assert (ports.of("a"), ports.of("b") != port) == (port, True)
    with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
        stranger.bind(("127.0.0.1", port))
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("", port))
        server.listen()
        socket.create_connection(("127.0.0.1", port)).close()
    ports.close()


def test_addresses_become_local() -> None:
    ports = Ports()
    env = {
        "RLTRAINING_LEARNERS": "http://demo-learner-0.demo:8080,http://demo-learner-1.demo:8080",
        "RLTRAINING_REPLAYS": "http://demo-replay-0.demo:8080",
        "RLTRAINING_HTTP_PORT": "8080",
        "OTHER": "http://example.com:80",
    }
    local = localize(env, "demo-sampler-0", ports)
    first, second = ports.of("demo-learner-0"), ports.of("demo-learner-1")
    assert local["RLTRAINING_LEARNERS"] == f"http://127.0.0.1:{first},http://127.0.0.1:{second}"
    assert local["RLTRAINING_HTTP_PORT"] == str(ports.of("demo-sampler-0"))
    assert local["RLTRAINING_HTTP_HOST"] == "127.0.0.1", "metrics are not for the whole network"
    assert local["RLTRAINING_REPLAYS"] == f"http://127.0.0.1:{ports.of('demo-replay-0')}"
    assert local["OTHER"] == env["OTHER"]
    ports.close()


@pytest.mark.parametrize("theirs", [{}, {"GLOO_SOCKET_IFNAME": "eth0"}])
def test_rpc_and_collectives_stay_on_the_loopback_interface_unless_told_otherwise(
    theirs: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    ports = Ports()
    ours = {"TP_SOCKET_IFNAME": "lo", "GLOO_SOCKET_IFNAME": "lo"}
    assert localize(theirs, "demo-learner-0", ports) == ours | theirs
    ports.close()


POD: dict[str, Any] = {
    "spec": {
        "volumes": [
            {"name": "config", "configMap": {"name": "c"}},
            {"name": "token", "secret": {"secretName": "s"}},
            {"name": "output", "persistentVolumeClaim": {"claimName": "x"}},
            {"name": "cache", "emptyDir": {}},
        ]
    }
}
CONTAINER = {
    "volumeMounts": [
        {"name": "config", "mountPath": "/etc/c"},
        {"name": "output", "mountPath": "/output/"},
        {"name": "cache", "mountPath": "/cache"},
    ]
}


def test_volumes_are_folders(tmp_path: Path) -> None:
    objects: dict[str, Any] = {"ConfigMap": {"data": {"job.json": "1"}}}
    volumes = Volumes(POD, tmp_path / "pod", tmp_path, lambda kind, name: objects.get(kind))
    with pytest.raises(MountError, match='secret "s" not found'):
        volumes.refresh()
    objects["Secret"] = {"data": {"token": base64.b64encode(b"xyz").decode()}}
    volumes.refresh()
    token = tmp_path / "pod/token/token"
    assert (token.read_text(), stat.S_IMODE(token.stat().st_mode)) == ("xyz", 0o600)
    config = tmp_path / "pod/config/job.json"
    with config.open() as old:
        objects["ConfigMap"] = {"data": {"job.json": "2"}}
        volumes.refresh()
        assert (old.read(), config.read_text()) == ("1", "2"), "a reader sees one whole version"
    assert volumes.localize(
        {
            "A": "/etc/c/job.json",
            "B": "/output",
            "C": "/cache/x",
            "D": "/dev/termination-log",
            "E": "/etc/cd",
        },
        CONTAINER,
    ) == {
        "A": str(config),
        "B": str(tmp_path),
        "C": str(tmp_path / "pod/cache/x"),
        "D": str(tmp_path / "pod/termination-log"),
        "E": "/etc/cd",
    }
    volumes.remove()
    assert not (tmp_path / "pod").exists()


def test_merge_patch() -> None:
    assert merge_patch({"a": 1, "b": {"c": 1, "d": 2}}, {"a": None, "b": {"c": 3}, "e": [1]}) == {
        "b": {"c": 3, "d": 2},
        "e": [1],
    }


def test_the_store_shares_nothing_and_counts_generations() -> None:
    store, manifest = LocalStore(), {"kind": "Pod", "metadata": {"name": "a"}, "spec": {"x": {"y": 1}}}
    assert store.create(manifest)
    assert not store.create(manifest)
    store.get("Pod", "a")["spec"]["x"]["y"] = 2  # type: ignore[index]
    assert store.get("Pod", "a")["spec"] == {"x": {"y": 1}}  # type: ignore[index]
    assert not store.merge("Pod", "a", {"spec": {"x": {"y": 1}}})
    assert store.merge("Pod", "a", {"spec": {"x": {"y": 3}}})
    assert store.merge("Pod", "a", {"metadata": {"labels": {"l": "m"}}})
    assert store.get("Pod", "a")["metadata"]["generation"] == 2  # type: ignore[index]


class Crash:
    """A process that has ended with code 1."""

    pid = 0

    async def wait(self) -> Exit:
        return Exit(1, 0)

    def send_signal(self, number: int) -> None: ...


class StartsOnce:
    """A runtime that starts one existing process and then fails."""

    def __init__(self, process: Process) -> None:
        self._left = [process]

    async def open(self, log: Path) -> None: ...

    async def start(self, command: Command) -> Process:
        if not self._left:
            raise StartError("no more")
        return self._left.pop()

    async def close(self) -> None: ...


def local_pod(
    spec: dict[str, Any],
    runtime: StartsOnce,
    ports: Ports,
    workdir: Path,
    publish: Callable[[dict[str, Any]], None],
) -> LocalPod:
    """Starts the pod `demo-sampler-0` with an empty folder."""
    folder = workdir / "pod"
    folder.mkdir()
    return LocalPod(
        {"metadata": {"name": "demo-sampler-0"}, "spec": spec},
        runtime=runtime,
        volumes=Volumes({"spec": spec}, folder, workdir, lambda *_: None),
        ports=ports,
        workdir=workdir,
        publish=publish,
    )


async def test_a_start_that_fails_is_no_second_end(tmp_path: Path) -> None:
    spec = {"containers": [{"name": "trainer", "command": ["x"]}], "restartPolicy": "OnFailure"}
    published: list[tuple[str, int]] = []

    def publish(status: dict[str, Any]) -> None:
        view = Pod({"metadata": {}, "status": status})
        published.append((view.containers[0].waiting.get("reason", ""), view.failures))

    ports = Ports()
    pod = local_pod(spec, StartsOnce(Crash()), ports, tmp_path, publish)
    await asyncio.sleep(5)
    await pod.stop(0)
    ports.close()
    assert ("CrashLoopBackOff", 1) in published
    assert {failures for why, failures in published if why == "RunContainerError"} == {1}


class Hanging:
    """A process that runs until it is killed."""

    pid = 0

    def __init__(self) -> None:
        self._ended = asyncio.get_running_loop().create_future()

    async def wait(self) -> Exit:
        return await asyncio.shield(self._ended)

    def send_signal(self, number: int) -> None:
        self._ended.set_result(Exit(128 + number, number))


async def test_a_process_that_hangs_is_killed_once_it_has_answered_before(tmp_path: Path) -> None:
    probe = {"httpGet": {"path": "/healthz"}, "periodSeconds": 5, "timeoutSeconds": 5, "failureThreshold": 6}
    container = {"name": "trainer", "command": ["x"], "livenessProbe": probe}
    spec = {"containers": [container], "restartPolicy": "Never"}
    hangs = False

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if not hangs:
            writer.write(b"HTTP/1.0 200 OK\r\n\r\n")
        writer.close()

    ports = Ports()
    ends: list[dict[str, Any]] = []

    def publish(status: dict[str, Any]) -> None:
        if terminated := status["containerStatuses"][0]["state"].get("terminated"):
            ends.append(terminated)

    pod = local_pod(spec, StartsOnce(Hanging()), ports, tmp_path, publish)
    await asyncio.sleep(60)
    assert not ends, "it takes its time to start"
    async with await asyncio.start_server(answer, "127.0.0.1", ports.of("demo-sampler-0")):
        await asyncio.sleep(60)
        assert not ends
        hangs = True
        await asyncio.sleep(25)
        assert not ends
        await asyncio.sleep(15)
    await pod.stop(0)
    ports.close()
    assert ends[0]["exitCode"] == 137
    assert "did not answer its liveness probe" in ends[0]["message"]


def test_a_log_keeps_its_newest_lines_while_its_writer_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    with path.open("ab", buffering=0) as writer:
        for number in range(1000):
            writer.write(b"line %d\n" % number)
        size = path.stat().st_size
        assert shorten(path, most=size) == 0
        cut = shorten(path, most=size - 1, kept=200)
        writer.write(b"ValueError: the end\n")
    first, *rest = path.read_text().splitlines()
    assert first == f"... {cut} bytes before this line were left out: the log had become larger than 0 MiB"
    assert rest == [
        *(f"line {number}" for number in range(1000 - len(rest) + 1, 1000)),
        "ValueError: the end",
    ]
    assert path.stat().st_size < 200 + 120
    assert cut + sum(len(line) + 1 for line in rest[:-1]) == size
    assert shorten(tmp_path / "nope") == 0


async def test_the_log_of_a_process_that_runs_is_bounded_and_its_termination_message_is_found(
    tmp_path: Path,
) -> None:
    trainer = {"name": "trainer", "command": ["x"], "terminationMessagePolicy": "FallbackToLogsOnError"}
    spec = {"containers": [trainer], "restartPolicy": "Never"}
    log = tmp_path / "logs" / "demo-sampler-0.log"
    log.parent.mkdir()
    with log.open("wb") as file:
        file.truncate(LOG_BYTES_MAX - 1)  # of earlier incarnations
    ports, process = Ports(), Hanging()
    ends: list[dict[str, Any]] = []

    def publish(status: dict[str, Any]) -> None:
        if terminated := status["containerStatuses"][0]["state"].get("terminated"):
            ends.append(terminated)

    pod = local_pod(spec, StartsOnce(process), ports, tmp_path, publish)
    with log.open("ab", buffering=0) as output:
        await asyncio.sleep(2)
        output.write(b"a stranger's call\n" * 100)
        await asyncio.sleep(2)
        assert log.stat().st_size < 10_000
        output.write(b"ValueError: the end\n")
    process._ended.set_result(Exit(1, 0))
    await asyncio.sleep(1)
    await pod.stop(0)
    ports.close()
    assert log.read_bytes().startswith(b"... ")
    assert ends[0]["message"].endswith("a stranger's call\nValueError: the end\n")


async def test_a_status_that_was_refused_is_written_at_the_end_if_there_is_room_again(
    tmp_path: Path, real_time: None
) -> None:
    fresh, written = tmp_path / "status.json.new", tmp_path / "status.json"
    fresh.symlink_to("/dev/full")
    file = StatusFile(written)
    file.write({"number": 1})
    while not file._refused:
        await asyncio.sleep(0.001)
    fresh.unlink()
    await file.close()
    assert json.loads(written.read_text()) == {"number": 1}


async def test_a_disk_that_takes_its_time_holds_nobody_up_and_the_newest_status_is_written(
    tmp_path: Path, real_time: None
) -> None:
    fresh, written = tmp_path / "status.json.new", tmp_path / "status.json"
    os.mkfifo(fresh)  # opening a FIFO for writing blocks until a reader opens it
    file = StatusFile(written)
    for number in range(3):
        file.write({"number": number})
        await asyncio.sleep(0)
    first = await asyncio.to_thread(fresh.read_bytes)
    await file.close()
    assert json.loads(first) == {"number": 0}
    assert json.loads(written.read_text()) == {"number": 2}
