"""What may change in a job that exists, and what refuses to with a sentence: every field of the spec is tried."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from bounds import KINDS, Case
from rltraining_api.job import IMMUTABLE
from rltraining_api.manifest import parse_job
from rules import rules
from schema_walk import DEDICATED, SHORTEST, Json, job, nodes
from verdicts import AT_ONCE, Complaints, Server, complaints, of_the_models

NOBODY = {"managedBy": "example.com/nobody"}
"""Keeps an operator, should there be one, away from a job."""

SPECS: dict[str, Json] = {
    "shortest": SHORTEST | {"runPolicy": {"suspend": True}},
    "managed": SHORTEST | {"runPolicy": NOBODY},
    "dedicated": DEDICATED | {"runPolicy": NOBODY},
    "full": SHORTEST
    | {
        "image": "registry.example/trainer:1",
        "code": {"configMap": {"name": "code"}},
        "runPolicy": NOBODY | {"schedulingPolicy": {"kueue": {"queueName": "a"}}},
    },
}
"""Jobs by name; in the last all is set that may be left out for good."""


@pytest.fixture(scope="module")
def stored(server: Server) -> Iterator[dict[str, Json]]:
    """The jobs, as the API server keeps them."""
    made = {name: _create(server, name, spec) for name, spec in SPECS.items()}
    yield made
    for name in made:
        server.request("DELETE", f"{server.jobs}/{name}")


def test_each_rule_of_a_change_is_about_one_immutable_field() -> None:
    found = [(path, message.partition(" is immutable")[0]) for path, message in rules(of_changes=True)]
    assert found == [("spec", field) for field in IMMUTABLE]


@pytest.mark.parametrize(
    ("before", "change", "field"),
    [
        ("shortest", {"algorithm": {"impala": {"discount": 0.5}}}, "algorithm"),
        ("shortest", {"environment": {"id": "Pendulum-v1"}}, "environment"),
        ("shortest", {"environment": {"kwargs": {"gravity": 1}}}, "environment"),
        ("shortest", {"network": {"lstm": {}}}, "network"),
        ("shortest", {"learner": {"template": {"metadata": {"labels": {"a": "b"}}}}}, "learner"),
        ("dedicated", {"replay": {"replicas": 2}}, "replay"),
        ("shortest", {"sampler": {"template": {"spec": {"hostNetwork": False}}}}, "sampler.template"),
        ("shortest", {"image": "other:1"}, "image"),
        ("full", {"image": "other:1"}, "image"),
        ("full", {"image": None}, "image"),
        ("shortest", {"code": {"configMap": {"name": "other"}}}, "code"),
        ("full", {"code": {"configMap": {"name": "other"}}}, "code"),
        ("full", {"code": None}, "code"),
        ("shortest", {"checkpoint": {"uri": "s3://b/p"}}, "checkpoint"),
        ("shortest", {"runPolicy": {"managedBy": "other.com/a"}}, "runPolicy.managedBy"),
        ("full", {"runPolicy": {"managedBy": "other.com/a"}}, "runPolicy.managedBy"),
        ("full", {"runPolicy": {"managedBy": None}}, "runPolicy.managedBy"),
        ("shortest", {"runPolicy": {"schedulingPolicy": {"volcano": {}}}}, "runPolicy.schedulingPolicy"),
        ("full", {"runPolicy": {"schedulingPolicy": {"kueue": {"queueName": "b"}}}}, "runPolicy.schedulingPolicy"),
        ("full", {"runPolicy": {"schedulingPolicy": None}}, "runPolicy.schedulingPolicy"),
        ("full", {"runPolicy": None}, "runPolicy.managedBy"),
        ("shortest", {"seed": 1}, "seed"),
    ],
)  # fmt: skip
def test_what_is_immutable_refuses_a_change_with_a_sentence(
    server: Server, stored: dict[str, Json], before: str, change: Json, field: str
) -> None:
    answer = server.request("PATCH", f"{server.jobs}/{before}", {"spec": change}, patch="merge")
    messages = [each.message for each in complaints(answer)]
    sentence = f"{field} is immutable: delete the job and create it anew to change it"
    assert any(sentence in message for message in messages), messages
    assert server.request("GET", f"{server.jobs}/{before}")["spec"] == stored[before]["spec"]


@pytest.mark.parametrize(
    "change",
    [
        {"sampler": {"replicas": 7}},
        {"stop": {"environmentSteps": 5_000_000, "meanReturn": {"atLeast": 400}}},
        {"stop": {"environmentSteps": None, "seconds": 60}},
        {"runPolicy": {"suspend": True}},
        {"runPolicy": {"suspend": False, "backoffLimit": 0, "cleanPodPolicy": "None"}},
        {"runPolicy": {"activeDeadlineSeconds": 60, "ttlSecondsAfterFinished": 0}},
        {
            "runPolicy": {
                "podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "X"}]}]}
            }
        },
    ],
)
def test_what_is_mutable_changes(server: Server, change: Json) -> None:
    generation = _create(server, "changing", SPECS["full"])["metadata"]["generation"]
    try:
        changed = server.request("PATCH", f"{server.jobs}/changing", {"spec": change}, patch="merge")
        assert not complaints(changed)
        assert changed["metadata"]["generation"] == generation + 1
        assert _holds(changed["spec"], change), changed["spec"]
    finally:
        server.request("DELETE", f"{server.jobs}/changing")


def test_every_field_changes_or_says_that_it_does_not(server: Server, stored: dict[str, Json]) -> None:
    """Each value that a new job may have, in a job that has another."""

    def before(case: Case) -> Json:
        return stored["dedicated" if case.field.startswith("spec.replay") else "managed"]

    wanted = [case for node in nodes() for kind in KINDS.values() for case in kind(node)]
    wanted = [case for case in wanted if case.accepted and _differs(case.manifest, before(case))]

    def replace(case: Case) -> Complaints:
        spec, old = case.manifest["spec"], before(case)
        body = old | {"spec": spec | {"runPolicy": NOBODY | spec.get("runPolicy", {})}}
        path = f"{server.jobs}/{old['metadata']['name']}"
        return complaints(server.request("PUT", path, body, dryRun="All"))

    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(replace, wanted))
    for case, found in zip(wanted, answers, strict=True):
        fixed = _governing(case.field.removeprefix("spec."))
        said = {each.message.partition(" is immutable")[0].rpartition(" ")[2] for each in found}
        assert said == ({fixed} if fixed else set()), f"{case.field} ({case.what}): {found}"
    tried = {case.field.split(".")[1] for case in wanted}
    assert tried == {*stored["managed"]["spec"], "replay", "image", "code"}


def _differs(manifest: Json, stored: Json) -> bool:
    """Whether it is a job that may be made, and another one."""
    if of_the_models(manifest):
        return False
    spec = parse_job(manifest).to_dict()["spec"]
    return bool(spec | {"runPolicy": NOBODY | spec["runPolicy"]} != stored["spec"])


def _create(server: Server, name: str, spec: Json) -> Json:
    answer = server.request("POST", server.jobs, job(spec, name), fieldValidation="Strict")
    assert not complaints(answer), answer
    return answer


def _holds(found: Any, patch: Any) -> bool:
    """Whether a merge patch with these values has been obeyed; the server may have added defaults."""
    if isinstance(patch, dict):
        return all(_holds(found.get(key), value) for key, value in patch.items())
    if isinstance(patch, list):
        return len(found) == len(patch) and all(map(_holds, found, patch))
    return bool(found == patch)


def _governing(field: str) -> str | None:
    """The immutable field that it is, or lies in."""
    return next((fixed for fixed in IMMUTABLE if field == fixed or field.startswith(f"{fixed}.")), None)
