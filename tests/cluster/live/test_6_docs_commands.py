"""Commands of the pages, run as written in a cluster with the operator, from the first job to its end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from docs_pages import ROOT, commands
from jobs import Job, Team

pytestmark = [pytest.mark.timeout(300), pytest.mark.at_once]

PROGRAMS = Path(sys.executable).parent
OPERATOR = (
    ("docs/operations/upgrade.md", "helm get values rltraining-operator --namespace rltraining-system"),
    ("docs/install.md", "helm test rltraining-operator --namespace rltraining-system"),
    (
        "docs/operations/runbook.md",
        "kubectl logs --namespace rltraining-system --selector app.kubernetes.io/component=operator --prefix --tail 100",
    ),
)
RUN = (
    ("docs/quickstart.md", "kubectl apply -f examples/cartpole-impala.yaml"),
    ("docs/operations/runbook.md", "kubectl get rlj --all-namespaces -o wide"),
    ("docs/quickstart.md", "rltrain watch cartpole"),
    ("docs/quickstart.md", "kubectl describe rlj cartpole"),
    ("docs/clusters.md", "kubectl rltrain get"),
)
"""Pages and commands that follow a job to its end. A command that its page no longer has fails the test."""
LONG = (
    (
        "docs/quickstart.md",
        "rltrain submit cartpole-a3c --name long --set stop.meanReturn=null --set stop.environmentSteps=1e8",
    ),
    ("docs/quickstart.md", "kubectl wait rlj/long --for=condition=Ready --timeout=120s"),
    ("docs/quickstart.md", "kubectl scale rlj/long --replicas 4"),
    ("docs/quickstart.md", "rltrain get"),
)
"""Pages and commands for a job that trains for minutes."""


@contextmanager
def shell(team: Team) -> Iterator[dict[str, str]]:
    """Yields a user's environment with a kubeconfig that selects the team's namespace."""
    with TemporaryDirectory() as home:
        path = Path(home) / "config"
        path.write_text(team.cluster.kubeconfig.read_text())
        path.chmod(0o600)
        environment = team.cluster.environment | {"KUBECONFIG": str(path)}
        environment["PATH"] = f"{PROGRAMS}{os.pathsep}{environment['PATH']}"
        run("kubectl config set-context --current --namespace=" + team.namespace, environment)
        yield environment


def run(text: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-c", text],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{text} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def as_written(page: str, text: str) -> str:
    assert any(found.page == page and found.text == text for found in commands()), f"{page} has no: {text}"
    return text


@pytest.mark.parametrize(("page", "text"), OPERATOR, ids=[text for _, text in OPERATOR])
def test_the_operator_is_inspected_as_written(team: Team, page: str, text: str) -> None:
    with shell(team) as user:
        assert run(as_written(page, text), user)


def test_a_job_is_created_watched_and_deleted_as_written(team: Team) -> None:
    with shell(team) as user:
        said = {text: run(as_written(page, text), user) for page, text in RUN}
        assert "cartpole" in said["kubectl rltrain get"]
        assert "Succeeded" in said["rltrain watch cartpole"]
        assert Job(team, "cartpole").status["progress"]["meanReturn"] >= 475
        delete(user, Job(team, "cartpole"))


def test_a_job_is_scaled_while_it_trains_as_written(team: Team) -> None:
    with shell(team) as user:
        said = {text: run(as_written(page, text), user) for page, text in LONG}
        assert "long" in said["rltrain get"]
        job = Job(team, "long")
        job.until_ready("1/1", "4/4")
        job.until_steps()
        delete(user, job)


def delete(user: dict[str, str], job: Job) -> None:
    run(as_written("docs/quickstart.md", f"kubectl delete rlj/{job.name}"), user)
    names = job.team.kubectl("get", "rlj", "-o", "name").split()
    assert f"rltrainingjob.rltraining.dev/{job.name}" not in names
