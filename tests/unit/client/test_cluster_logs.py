"""`rltrain logs` and `submit --follow`, against a fake API server."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from queue import Queue
from typing import Any, cast

import pytest
import yaml
from command_line import refused, rltrain, succeeded
from fake_api import FakeApi, running, terminated
from rltraining import RLTrainingClient
from rltraining.cluster import logs as logs_command
from rltraining.sdk.client import JobChange
from rltraining_api.job import RLTrainingJob
from rltraining_api.manifest import read_job

pytestmark = pytest.mark.usefixtures("cluster")


def put_all(api: FakeApi, role: str, indices: Iterable[int]) -> None:
    """Creates pods with one log line each."""
    for index in indices:
        api.pod(f"cartpole-{role}-{index}", running(f"{role}-{index}"))
        api.write(f"{role}-{index}", f"line of {index}")


@pytest.mark.parametrize(("phase", "code"), [("Succeeded", 0), ("Failed", 1)])
def test_submit_follows_the_log(phase: str, code: int, file: Path, api: FakeApi) -> None:
    put_all(api, "learner", [0])

    def finish() -> None:
        api.pod("cartpole-learner-0", terminated("learner-0"), phase="Succeeded")
        api.finish(phase=phase, message="it ended so")
        api.end("learner-0")

    api.after(1, finish)
    result = rltrain("submit", file, "--follow")
    assert result.exit_code == code
    assert result.stdout.splitlines()[1:] == ["line of 0"]
    assert "it ended so" in result.stderr


def test_logs(api: FakeApi, job: Any) -> None:
    put_all(api, "sampler", [0, 1])
    api.write("sampler-0", "second")
    assert succeeded("logs", "cartpole", "-r", "sampler", "--tail", "1") == "second\n"
    assert succeeded("logs", "cartpole", "--role", "sampler", "--index", "all").splitlines() == [
        "[sampler-0] line of 0",
        "[sampler-0] second",
        "[sampler-1] line of 1",
    ]
    assert "there is no pod cartpole-learner-0" in refused("logs", "cartpole")
    assert "--index: must be a number or all, got x" in refused("logs", "cartpole", "-i", "x")
    assert "--follow and --previous exclude each other" in refused("logs", "cartpole", "-f", "-p")
    api.put("rltrainingjobs", {**job, "spec": {**job["spec"], "sampler": {"replicas": 65}}})
    told = "--index all: 65 pods are too many to follow (at most 64): choose some with --index"
    assert refused("logs", "cartpole", "--role", "sampler", "--index", "all", "-f") == told


def test_logs_of_replay_pods(api: FakeApi, job: dict[str, Any]) -> None:
    for more in (("-i", "all"), ("-i", "all", "-f")):
        told = refused("logs", "cartpole", "--role", "replay", *more)
        assert told == "--role: job cartpole has no replay pods"
    assert "of its replays there is none" in refused("logs", "cartpole", "-r", "replay")
    algorithm = {"dqnApex": {"replay": {"placement": "Dedicated"}}}
    spec = job["spec"] | {"algorithm": algorithm, "replay": {"replicas": 2}}
    api.put("rltrainingjobs", {**job, "spec": spec})
    put_all(api, "replay", [0, 1])
    told = succeeded("logs", "cartpole", "-r", "replay", "-i", "all")
    assert told == "[replay-0] line of 0\n[replay-1] line of 1\n"


def test_all_samplers_are_followed_also_those_that_come_later(api: FakeApi, job: Any) -> None:
    put_all(api, "sampler", [0, 1])

    def grow() -> None:
        put_all(api, "sampler", [2])
        current = api.job()
        api.put("rltrainingjobs", {**current, "spec": {**current["spec"], "sampler": {"replicas": 3}}})

    def finish() -> None:
        api.finish()
        for index in range(3):
            api.pod(f"cartpole-sampler-{index}", terminated(f"sampler-{index}"), phase="Succeeded")
            api.end(f"sampler-{index}")

    api.after(3, grow, finish)
    told = succeeded("logs", "cartpole", "--role", "sampler", "--index", "all", "--follow")
    assert sorted(told.splitlines()) == [f"[sampler-{index}] line of {index}" for index in range(3)]


class Members:
    """A client with one log line per sampler. The job changes once sampler 1's log has ended."""

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
        self._readers.get(timeout=60).join(60)
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
    options = logs_command.LogsOptions("cartpole", "sampler", "all", follow=True)
    logs_command.logs(cast(RLTrainingClient, client), options, out)
    told = ["[sampler-0] line of 0", *["[sampler-1] line of 1"] * times]
    assert sorted(out.getvalue().splitlines()) == told
