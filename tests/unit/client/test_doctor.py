"""`rltrain doctor`: its report on this machine and on a cluster, and when the command fails."""

from __future__ import annotations

import resource
import tomllib
from pathlib import Path

import pytest
from command_line import rltrain
from fake_api import FakeApi, Fault, failure, forbidden
from rltraining import local
from rltraining.doctor import Level, graded, machine
from rltraining_api.extras import install_command

CLIENT = Path(__file__).parents[3] / "client" / "pyproject.toml"


def lines(*arguments: str | Path, code: int = 0) -> list[str]:
    result = rltrain("doctor", *arguments)
    assert (result.exit_code, result.stderr) == (code, ""), result.output
    return result.stdout.splitlines()


@pytest.fixture
def no_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))


@pytest.mark.usefixtures("api", "kubeconfig")
def test_each_check_is_a_line_and_a_cluster_that_answers_is_named() -> None:
    found = lines()
    assert {line.split()[0] for line in found} <= {"ok", "warning"}
    for start in ("ok       rltrain 0.1.0, Python 3.", "ok       torch 2.", "ok       extras: "):
        assert any(line.startswith(start) for line in found), start
    for word in (" core", " memory: ", " open files: ", " disk: "):
        assert any(word in line for line in found), word
    assert found[-1].startswith("ok       cluster: context ")
    assert found[-1].endswith(" answers, and has RLTrainingJobs")


@pytest.mark.usefixtures("no_cluster")
def test_runs_on_this_machine_need_no_cluster(tmp_path: Path) -> None:
    assert lines()[-1].startswith("warning  no cluster is known: ")
    missing = tmp_path / "kubeconfig"
    assert (
        lines("--kubeconfig", missing, code=1)[-1] == f"error    kubeconfig {missing}: there is no such file"
    )


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        (
            failure(404, "NotFound", "the server could not find the requested resource"),
            "install the operator",
        ),
        (forbidden("list", "rltrainingjobs"), "the cluster answers, but ann may not list rltrainingjobs"),
        (failure(500, "InternalError", "etcd is unavailable"), "answers 500: etcd is unavailable"),
    ],
)
def test_a_cluster_without_what_jobs_need(api: FakeApi, kubeconfig: Path, fault: dict, sentence: str) -> None:
    api.faults += [Fault("GET", "rltrainingjobs", fault) for _ in range(2)]
    assert sentence in lines()[-1]
    assert lines("--kubeconfig", kubeconfig, code=1)[-1].startswith("error ")


def test_a_light_client_is_enough_for_a_cluster(
    api: FakeApi, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "MODULES", ("no_such_module",))
    remedy = f"packages that are not installed (no_such_module): {install_command('local')}"
    assert any(line.startswith("warning") and line.endswith(remedy) for line in lines())
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig.with_name("none")))
    assert any(line.startswith("error") and line.endswith(remedy) for line in lines(code=1))


@pytest.mark.parametrize(("amount", "level"), [(10, "ok"), (9, "warning"), (5, "warning"), (4, "error")])
def test_an_amount_is_graded(amount: int, level: Level) -> None:
    found = graded(amount, 10, 5, "cores", "buy more")
    assert found == (level, "cores", "" if level == "ok" else "buy more")


def test_a_low_limit_of_open_files_and_a_folder_that_is_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard))
    try:
        findings = list(machine(tmp_path))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    remedy = "raise the limit with ulimit -n 4096"
    assert ("warning", "open files: at most 300", remedy) in findings
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert any(
        f"{tmp_path} is not writable" == text for level, text, _ in machine(tmp_path) if level == "error"
    )


def test_each_extra_of_the_client_is_checked() -> None:
    extras = set(tomllib.loads(CLIENT.read_text())["project"]["optional-dependencies"])
    assert extras == {"local", *local.EXTRA_MODULES}
