"""`rltrain chaos --cluster`, against a fake API server."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from command_line import refused, rltrain
from fake_api import FakeApi, failure, pod_labels
from rltraining.trust import cluster_chaos

PODS = ("cartpole-learner-0", "cartpole-sampler-0", "cartpole-sampler-1")

pytestmark = pytest.mark.usefixtures("cluster")


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(cluster_chaos, "PAUSE_SECONDS", 0.005)
    return


@pytest.fixture
def trained(api: FakeApi, job: dict[str, Any]) -> FakeApi:
    """An API server with job cartpole and its pods."""
    api.put("rltrainingjobs", job)
    for name in PODS:
        create(api, name)
    api.status(phase="Running", progress={"environmentSteps": 10})
    return api


def create(api: FakeApi, name: str) -> None:
    """Creates a ready pod of job cartpole."""
    metadata = {
        "name": name,
        "labels": pod_labels(name),
        "ownerReferences": [{"uid": api.job()["metadata"]["uid"]}],
    }
    api.put("pods", {"metadata": metadata, "status": {"conditions": [{"type": "Ready", "status": "True"}]}})


class Operator:
    """Creates pods again within a block. Ends the job in a phase after a number of deletions."""

    def __init__(self, api: FakeApi, deletions: int, phase: str) -> None:
        self.deleted: list[str] = []
        self._api, self._deletions, self._phase = api, deletions, phase
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Operator:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        api = self._api
        while len(self.deleted) < self._deletions:
            if self._over.is_set():
                return
            time.sleep(0.002)
            for name in PODS:
                if ("default", name) not in api.objects["pods"]:
                    self.deleted.append(name)
                    create(api, name)
        time.sleep(0.1)
        api.finish(phase=self._phase, restarts=len(self.deleted))


def test_pods_of_the_named_roles_are_deleted_until_the_job_is_over(trained: FakeApi) -> None:
    with Operator(trained, 4, "Succeeded") as operator:
        result = rltrain("chaos", "cartpole", "--cluster", "--kill", "sampler=0.02s")
    assert result.exit_code == 0, result.output
    assert {"cartpole-sampler-0", "cartpole-sampler-1"} >= set(operator.deleted)
    assert len(operator.deleted) >= 4
    assert "chaos: deleted cartpole-sampler-" in result.stdout
    assert " is ready again after " in result.stdout
    assert "chaos: kill sampler, " in result.stdout
    assert " at step 10, " in result.stdout


def test_a_job_that_fails_is_reported(trained: FakeApi) -> None:
    with Operator(trained, 1, "Failed"):
        result = rltrain("chaos", "cartpole", "--cluster", "--kill", "learner=0.02s")
    assert result.exit_code == 1, result.output
    assert "chaos: kill learner, " in result.stdout
    assert "Failed at step 10, " in result.stdout


def test_kills_end_after_a_time_while_the_job_continues(trained: FakeApi) -> None:
    with Operator(trained, 10**9, "Succeeded"):
        result = rltrain("chaos", "cartpole", "--cluster", "--kill", "sampler=0.02s", "--for", "0.3s")
    assert result.exit_code == 0, result.output
    assert "Running at step 10, " in result.stdout


def test_pods_of_another_job_with_the_same_name_are_not_deleted(trained: FakeApi) -> None:
    def replace() -> None:
        job = trained.job()
        trained.remove("rltrainingjobs", "cartpole")
        trained.put("rltrainingjobs", {**job, "metadata": {"name": "cartpole"}})

    def when_killed() -> None:
        with trained.changed:
            assert trained.changed.wait_for(lambda: len(trained.objects["pods"]) < len(PODS), 60)
            replace()

    thread = threading.Thread(target=when_killed)
    thread.start()
    result = rltrain("chaos", "cartpole", "--cluster", "--kill", "sampler=0.02s")
    thread.join()
    assert result.exit_code != 0
    assert "job cartpole was deleted, and created again" in result.stderr
    assert "chaos: kill sampler, 1 time" in result.stdout
    assert len(trained.objects["pods"]) == len(PODS) - 1


def test_an_api_server_that_does_not_answer_for_a_while_is_tolerated(trained: FakeApi) -> None:
    trained.fail("GET", "/pods", failure(503, "ServiceUnavailable", "try later"), times=12)
    with Operator(trained, 3, "Succeeded"):
        result = rltrain("chaos", "cartpole", "--cluster", "--kill", "sampler=0.02s")
    assert result.exit_code == 0, result.output
    assert "chaos: kill sampler, " in result.stdout


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--cluster", "--freeze", "sampler=9s"), "--freeze: the pods of a cluster cannot be frozen"),
        (("--cluster", "--workdir", "run"), "--cluster disturbs a submitted job: leave --workdir"),
        (("--namespace", "team-a"), "--namespace, --context and --kubeconfig name a cluster: add --cluster"),
    ],
)
def test_options_that_do_not_fit_are_refused(arguments: tuple[str, ...], problem: str) -> None:
    assert refused("chaos", "cartpole", *arguments).startswith(problem)
    assert "there is no job cartpole" in refused("chaos", "cartpole", "--cluster")
