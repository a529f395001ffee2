"""`rltrain logs` and `submit --follow`, against a fake API server."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from typing import Any, cast

import pytest
import yaml
from command_line import rltrain
from fake_api import FakeApi, when_streams
from rltraining import RLTrainingClient
from rltraining.cluster import logs as logs_command
from rltraining.sdk.client import JobChange
from rltraining_api.job import RLTrainingJob
from rltraining_api.manifest import read_job

END = "2026-11-21T11:00:00Z"

pytestmark = pytest.mark.usefixtures("cluster")


def put_pod(api: FakeApi, name: str, container: str, *, ended: bool = False) -> None:
    state = {"terminated": {"containerID": container, "exitCode": 0}} if ended else {"running": {}}
    statuses = [{"name": "trainer", "containerID": container, "state": state}]
    status = {"phase": "Succeeded" if ended else "Running", "containerStatuses": statuses}
    api.put("pods", {"metadata": {"name": name}, "spec": {"nodeName": "one"}, "status": status})


@pytest.mark.parametrize(("phase", "code"), [("Succeeded", 0), ("Failed", 1)])
def test_submit_follows_the_log(phase: str, code: int, file: Path, api: FakeApi) -> None:
    put_pod(api, "cartpole-learner-0", "a")
    api.write("a", "step 1")

    def finish() -> None:
        put_pod(api, "cartpole-learner-0", "a", ended=True)
        api.status("cartpole", phase=phase, message="it ended so", completionTime=END)
        api.end("a")

    when_streams(api, 1, finish)
    result = rltrain("submit", file, "--follow")
    assert result.exit_code == code
    assert result.stdout.splitlines()[1:] == ["step 1"]
    assert "it ended so" in result.stderr


def test_logs(api: FakeApi, job: Any) -> None:
    for index in (0, 1):
        put_pod(api, f"cartpole-sampler-{index}", f"s{index}")
        api.write(f"s{index}", f"first of {index}", f"second of {index}")
    assert rltrain("logs", "cartpole", "-r", "sampler", "--tail", "1").output == "second of 0\n"
    assert rltrain("logs", "cartpole", "--role", "sampler", "--index", "all").output.splitlines() == [
        "[sampler-0] first of 0",
        "[sampler-0] second of 0",
        "[sampler-1] first of 1",
        "[sampler-1] second of 1",
    ]
    result = rltrain("logs", "cartpole")
    assert result.exit_code == 2
    assert "there is no pod cartpole-learner-0" in result.stderr
    assert "--index: must be a number or all, got x" in rltrain("logs", "cartpole", "-i", "x").stderr
    assert "--follow and --previous exclude each other" in rltrain("logs", "cartpole", "-f", "-p").stderr


def test_logs_of_replay_pods(api: FakeApi, job: dict[str, Any]) -> None:
    for more in (("-i", "all"), ("-i", "all", "-f")):
        result = rltrain("logs", "cartpole", "--role", "replay", *more)
        assert (result.exit_code, result.stderr) == (2, "error: --role: job cartpole has no replay pods\n")
    assert "of its replays there is none" in rltrain("logs", "cartpole", "-r", "replay").stderr
    algorithm = {"dqnApex": {"replay": {"placement": "Dedicated"}}}
    spec = job["spec"] | {"algorithm": algorithm, "replay": {"replicas": 2}}
    api.put("rltrainingjobs", {**job, "spec": spec})
    for index in (0, 1):
        put_pod(api, f"cartpole-replay-{index}", f"r{index}")
        api.write(f"r{index}", f"line of {index}")
    assert rltrain("logs", "cartpole", "-r", "replay", "-i", "all").output.splitlines() == [
        "[replay-0] line of 0",
        "[replay-1] line of 1",
    ]


def test_all_samplers_are_followed_also_those_that_come_later(api: FakeApi, job: Any) -> None:
    for index in (0, 1, 2):
        api.write(f"s{index}", f"line of {index}")
    put_pod(api, "cartpole-sampler-0", "s0")
    put_pod(api, "cartpole-sampler-1", "s1")

    def grow() -> None:
        current = api.objects["rltrainingjobs"]["default", "cartpole"]
        put_pod(api, "cartpole-sampler-2", "s2")
        api.put("rltrainingjobs", {**current, "spec": {**current["spec"], "sampler": {"replicas": 3}}})

    def finish() -> None:
        api.status("cartpole", phase="Succeeded", completionTime=END)
        for index in (0, 1, 2):
            put_pod(api, f"cartpole-sampler-{index}", f"s{index}", ended=True)
            api.end(f"s{index}")

    when_streams(api, 3, grow)
    when_streams(api, 4, finish)
    result = rltrain("logs", "cartpole", "--role", "sampler", "--index", "all", "--follow")
    assert result.exit_code == 0
    assert sorted(result.output.splitlines()) == [f"[sampler-{index}] line of {index}" for index in (0, 1, 2)]


class Members:
    """A client whose samplers have all written one line; a change of the job comes once sampler 1 is at its end."""

    def __init__(self, job: RLTrainingJob, replicas: tuple[int, ...]) -> None:
        self._job, self._replicas = job, replicas
        self._readers: Queue[threading.Thread] = Queue()

    def get(self, _: str) -> RLTrainingJob:
        return self._job

    def logs(self, name: str, role: str, index: int, **_: Any) -> Iterator[str]:
        if index == 1:
            self._readers.put(threading.current_thread())
        yield f"line of {index}"

    def watch(self, _: str) -> Iterator[JobChange]:
        self._readers.get(timeout=20).join(20)
        for replicas in self._replicas:
            spec = self._job.spec
            sampler = spec.sampler.model_copy(update={"replicas": replicas})
            spec = spec.model_copy(update={"sampler": sampler})
            yield JobChange("MODIFIED", self._job.model_copy(update={"spec": spec}))


@pytest.mark.parametrize(
    ("replicas", "times"), [((2, 2), 1), ((1, 2), 2)], ids=["the job changes", "scaled away and back"]
)
def test_a_member_at_its_end_is_told_again_only_when_it_comes_again(
    replicas: tuple[int, ...], times: int, manifest: str
) -> None:
    client, out = Members(read_job(yaml.safe_load(manifest)), replicas), io.StringIO()
    options = logs_command.Options("cartpole", "sampler", "all", follow=True)
    logs_command.logs(cast(RLTrainingClient, client), options, out)
    assert sorted(out.getvalue().splitlines()) == [
        "[sampler-0] line of 0",
        *["[sampler-1] line of 1"] * times,
    ]


def test_too_many_to_follow(api: FakeApi, job: dict[str, Any]) -> None:
    api.put("rltrainingjobs", {**job, "spec": {**job["spec"], "sampler": {"replicas": 65}}})
    result = rltrain("logs", "cartpole", "--role", "sampler", "--index", "all", "-f")
    assert (result.exit_code, result.stderr) == (
        2,
        "error: --index all: 65 pods are too many to follow (at most 64): choose some with --index\n",
    )
