"""`rltrain chaos --cluster`, against a fake API server."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import refused, rltrain
from fake_api import FakeApi
from rltraining.trust import cluster_chaos

PODS = ("cartpole-learner-0", "cartpole-sampler-0", "cartpole-sampler-1")

pytestmark = pytest.mark.usefixtures("cluster")


class Operator:
    """Creates the pods of job cartpole again, and ends the job after this number of deletions."""

    def __init__(self, api: FakeApi, deletions: int, phase: str) -> None:
        self.deleted: list[str] = []
        self._api, self._deletions, self._phase = api, deletions, phase
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        api, jobs = self._api, self._api.objects["rltrainingjobs"]
        with api.changed:
            assert api.changed.wait_for(lambda: jobs, 60)
        for name in PODS:
            self._create(name)
        api.status(phase="Running", progress={"environmentSteps": 10})
        while len(self.deleted) < self._deletions:
            time.sleep(0.002)
            for name in PODS:
                if ("default", name) not in api.objects["pods"]:
                    self.deleted.append(name)
                    self._create(name)
        time.sleep(0.1)
        api.finish(phase=self._phase, message="it is over", restarts=len(self.deleted))

    def _create(self, name: str) -> None:
        keys = [f"rltraining.dev/{key}" for key in ("job-name", "role", "index")]
        labels = dict(zip(keys, name.rsplit("-", 2), strict=True))
        conditions = [{"type": "Ready", "status": "True"}]
        self._api.put(
            "pods", {"metadata": {"name": name, "labels": labels}, "status": {"conditions": conditions}}
        )


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(cluster_chaos, "PAUSE_SECONDS", 0.005)
    return


def test_pods_of_the_named_roles_are_deleted_until_the_job_is_over(file: Path, api: FakeApi) -> None:
    operator = Operator(api, 4, "Succeeded")
    result = rltrain("chaos", file, "--cluster", "--kill", "sampler=0.02s", "--for", "9m")
    assert result.exit_code == 0, result.output
    assert {"cartpole-sampler-0", "cartpole-sampler-1"} >= set(operator.deleted)
    assert api.job()["spec"]["stop"]["seconds"] == 540
    assert "chaos: deleted cartpole-sampler-" in result.stdout
    assert " is ready again after 0." in result.stdout
    assert "chaos: kill sampler, " in result.stdout
    assert "the status counts 4 restarts: it is over" in result.stdout
    assert result.stdout.endswith("Succeeded at step 10\n")


def test_a_job_that_fails_is_reported(file: Path, api: FakeApi) -> None:
    Operator(api, 1, "Failed")
    result = rltrain("chaos", file, "--cluster", "--kill", "learner=0.02s")
    assert result.exit_code == 1, result.output
    assert "chaos: kill learner, " in result.stdout
    assert result.stdout.endswith("Failed at step 10\n")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--cluster", "--freeze", "sampler=9s"), "--freeze: the pods of a cluster cannot be frozen"),
        (
            ("--cluster", "--workdir", "run"),
            "--workdir and --overwrite: a job in a cluster has no folder here",
        ),
        (("--namespace", "team-a"), "--namespace, --context and --kubeconfig name a cluster: add --cluster"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    file: Path, api: FakeApi, arguments: tuple[str, ...], problem: str
) -> None:
    assert refused("chaos", file, *arguments).startswith(problem)
    assert not api.objects["rltrainingjobs"]
