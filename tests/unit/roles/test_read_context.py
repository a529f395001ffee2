"""The context that a process reads at its start, and one sentence for each error in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rltraining_api import contract
from rltraining_trainer.errors import BadConfiguration
from rltraining_trainer.roles.context import read_context

JOB = {
    "apiVersion": "rltraining.dev/v1alpha1",
    "kind": "RLTrainingJob",
    "metadata": {"name": "pole"},
    "spec": {
        "algorithm": {"impala": {}},
        "environment": {"id": "CartPole-v1"},
        "stop": {"environmentSteps": 100},
    },
}


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "job.json").write_text(json.dumps(JOB))
    (tmp_path / "token").write_text("secret\n")
    return {
        contract.ENV_JOB_FILE: str(tmp_path / "job.json"),
        contract.ENV_TOKEN_FILE: str(tmp_path / "token"),
        contract.ENV_POD_NAME: "pole-sampler-3",
        contract.ENV_INDEX: "3",
        contract.ENV_HTTP_PORT: "8080",
        contract.ENV_LEARNERS: "http://a:1,http://b:2",
        contract.ENV_OUTPUT_DIR: str(tmp_path / "out"),
    }


def refusal(variables: dict[str, str]) -> str:
    with pytest.raises(BadConfiguration) as caught:
        read_context(variables)
    sentence = str(caught.value)
    assert "\n" not in sentence, "one sentence"
    return sentence


def test_everything_is_read(variables: dict[str, str], tmp_path: Path) -> None:
    context = read_context(variables)

    assert context.job.spec.environment.id == "CartPole-v1"
    assert context.token == "secret"
    assert (context.pod, context.index, context.http_port) == ("pole-sampler-3", 3, 8080)
    assert context.learners == ("http://a:1", "http://b:2")
    assert context.storage == str(tmp_path / "out")
    assert not context.stopping.is_set()


@pytest.mark.parametrize(
    ("uri", "storage"), [("s3://bucket/runs", "s3://bucket/runs/pole"), ("file:///r/", "file:///r/pole")]
)
def test_jobs_that_share_a_uri_have_a_folder_each(variables: dict[str, str], uri: str, storage: str) -> None:
    job = json.loads(json.dumps(JOB))
    job["spec"]["checkpoint"] = {"uri": uri}
    Path(variables[contract.ENV_JOB_FILE]).write_text(json.dumps(job))

    assert read_context(variables).storage == storage


@pytest.mark.parametrize("value", [None, ""])
def test_every_variable_is_needed(variables: dict[str, str], value: str | None) -> None:
    for name in list(variables):
        incomplete = {k: v for k, v in variables.items() if k != name} | (
            {} if value is None else {name: value}
        )

        assert refusal(incomplete) == (
            f"the environment variable {name} is not set; the operator sets it in every pod"
        )


@pytest.mark.parametrize("name", [contract.ENV_INDEX, contract.ENV_HTTP_PORT])
@pytest.mark.parametrize("value", ["three", "-1", "3.5", "²"])
def test_numbers_are_numbers(variables: dict[str, str], name: str, value: str) -> None:
    assert refusal(variables | {name: value}) == (
        f"the environment variable {name} must be a whole number, got {value!r}"
    )


@pytest.mark.parametrize("name", [contract.ENV_JOB_FILE, contract.ENV_TOKEN_FILE])
def test_files_are_there_and_text(variables: dict[str, str], tmp_path: Path, name: str) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")

    assert refusal(variables | {name: "/no/such"}) == "/no/such cannot be read: No such file or directory"
    assert refusal(variables | {name: str(tmp_path)}) == f"{tmp_path} cannot be read: Is a directory"
    assert refusal(variables | {name: str(tmp_path / "binary")}) == (
        f"{tmp_path / 'binary'} cannot be read: it is not UTF-8 text"
    )


def test_an_empty_token_would_let_everybody_in(variables: dict[str, str]) -> None:
    path = Path(variables[contract.ENV_TOKEN_FILE])
    path.write_text(" \n")

    assert refusal(variables) == f"{path} is empty: it must hold the job's token"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "JSON"),
        ("[]", "object"),
        (json.dumps(JOB | {"kind": "Job"}), "kind"),
        (
            json.dumps(JOB | {"spec": JOB["spec"] | {"stop": {"environmentSteps": "many"}}}),
            "spec.stop.environmentSteps",
        ),
        (
            json.dumps(JOB | {"spec": JOB["spec"] | {"algorithm": {"unknown": {}}}}),
            "spec.algorithm: exactly one",
        ),
    ],
    ids=range(5),
)
def test_a_job_that_cannot_be_read_names_file_and_field(
    variables: dict[str, str], text: str, problem: str
) -> None:
    path = Path(variables[contract.ENV_JOB_FILE])
    path.write_text(text)

    sentence = refusal(variables)

    assert sentence.startswith(f"{path}: this trainer cannot read the job: ")
    assert problem in sentence


def test_fields_of_a_newer_operator_are_passed_over(variables: dict[str, str]) -> None:
    newer = JOB | {"spec": JOB["spec"] | {"fromTheFuture": 1}}
    Path(variables[contract.ENV_JOB_FILE]).write_text(json.dumps(newer))

    assert read_context(variables).job.spec.environment.id == "CartPole-v1"
