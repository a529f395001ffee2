"""What may change in a job that exists, and what refuses to with a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations
from random import Random
from typing import Any

import pytest
from random_jobs import SHORTEST, accepted, job, nodes
from rltraining_api.job import IMMUTABLE
from rltraining_api.manifest import parse_job
from verdicts import AT_ONCE, Complaints, Json, Server, complaints, of_the_models

NOBODY = {"managedBy": "example.com/nobody"}
"""Keeps an operator, should there be one, away from a job."""
pytestmark = pytest.mark.timeout(600)
DEDICATED = {"dqnApex": {"replay": {"placement": "Dedicated"}}}

SPECS: tuple[Json, ...] = (
    SHORTEST | {"runPolicy": {"suspend": True}},
    SHORTEST | {"runPolicy": NOBODY},
    SHORTEST | {"algorithm": DEDICATED, "runPolicy": NOBODY},
    SHORTEST | {"algorithm": DEDICATED, "runPolicy": NOBODY, "replay": {"replicas": 2}, "seed": 1},
    SHORTEST
    | {
        "image": "registry.example/trainer:1",
        "code": {"configMap": {"name": "code"}},
        "runPolicy": NOBODY | {"schedulingPolicy": {"kueue": {"queueName": "a"}}},
    },
    SHORTEST
    | {
        "image": "other:1",
        "code": {"configMap": {"name": "other"}},
        "sampler": {"replicas": 7},
        "runPolicy": {"managedBy": "other.com/a", "schedulingPolicy": {"volcano": {}}},
        "stop": {"seconds": 60},
    },
)
"""Jobs that differ in fields that may be left out for good, and in fields that may change."""


@pytest.fixture(scope="module")
def stored(server: Server) -> Iterator[list[Json]]:
    """The jobs, as the API server keeps them."""
    made = []
    for number, spec in enumerate(SPECS):
        made.append(server.request("POST", server.jobs, job(spec, f"a{number}"), fieldValidation="Strict"))
        assert not complaints(made[-1]), made[-1]
    yield made
    for number in range(len(SPECS)):
        server.request("DELETE", f"{server.jobs}/a{number}")


def test_a_change_is_refused_with_a_sentence_for_each_immutable_field_that_differs(
    server: Server, stored: list[Json]
) -> None:
    """Each of the jobs becomes each other one, and random jobs that have each field of the schema."""
    random = Random(1)
    changes = [(old, new["spec"]) for old, new in permutations(stored, 2)]
    for node in nodes():
        new = accepted(random, node)
        if not of_the_models(new):
            changes.append((random.choice(stored), parse_job(new).to_dict()["spec"]))

    def replace(change: tuple[Json, Json]) -> Complaints:
        old, spec = change
        path = f"{server.jobs}/{old['metadata']['name']}"
        return complaints(server.request("PUT", path, old | {"spec": spec}, dryRun="All"))

    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(replace, changes))
    wrong = []
    for (old, new), found in zip(changes, answers, strict=True):
        said = {each.message.partition(" is immutable")[0].rpartition(" ")[2] for each in found}
        differ = {field for field in IMMUTABLE if _dig(old["spec"], field) != _dig(new, field)}
        if said != differ:
            wrong.append(f"{sorted(said ^ differ)}: {old['spec']} became {new}: {found}")
    assert not wrong, "\n".join(wrong)


def _dig(spec: Json, field: str) -> Any:
    """The value of `runPolicy.managedBy`; None where there is none."""
    found: Any = spec
    for key in field.split("."):
        found = (found or {}).get(key)
    return found
