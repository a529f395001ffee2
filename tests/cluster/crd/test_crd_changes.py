"""Changes to existing jobs: allowed fields, and rejections with a message."""

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

NOBODY = {"managedBy": "example.com/absent"}
"""Excludes any operator from a job."""
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
        "checkpoint": {"everySeconds": 5, "keep": 1},
    },
    SHORTEST | {"runPolicy": NOBODY, "checkpoint": {"uri": "file:///a", "resumeFrom": "file:///b"}},
    SHORTEST | {"runPolicy": NOBODY, "algorithm": {"dqnApex": {"replay": {"placement": "Samplers"}}}},
    SHORTEST | {"runPolicy": NOBODY, "checkpoint": {"volume": {"claimName": "a"}}},
)
"""Jobs that differ in fields that can be absent permanently, and in fields that may change."""


@pytest.fixture(scope="module")
def stored(server: Server) -> Iterator[list[Json]]:
    """The jobs as stored by the API server."""
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
    """Each job is changed into each other job, and into random jobs that cover each field of the schema."""
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
        fixed = (*IMMUTABLE, "sampler.template") if _shards_in_samplers(new) else IMMUTABLE
        differ = {field for field in fixed if _dig(old["spec"], field) != _dig(new, field)}
        if said != differ:
            wrong.append(f"{sorted(said ^ differ)}: {old['spec']} became {new}: {found}")
    assert not wrong, "\n".join(wrong)


def test_the_template_of_samplers_may_change_unless_they_hold_replay_shards(
    server: Server, stored: list[Json]
) -> None:
    template = {"spec": {"nodeSelector": {"a": "b"}}, "metadata": {}}
    for old in stored:
        path = f"{server.jobs}/{old['metadata']['name']}"
        spec = old["spec"] | {"sampler": old["spec"]["sampler"] | {"template": template}}
        found = complaints(server.request("PUT", path, old | {"spec": spec}, dryRun="All"))
        assert bool(found) == _shards_in_samplers(spec), (spec, found)
        assert all("a replaced sampler loses its replay shard" in each.message for each in found)


def _shards_in_samplers(spec: Json) -> bool:
    (settings,) = spec["algorithm"].values()
    return bool((settings.get("replay") or {}).get("placement") == "Samplers")


def _dig(spec: Json, field: str) -> Any:
    """Returns the value of a field such as `runPolicy.managedBy`, or None."""
    found: Any = spec
    for key in field.split("."):
        found = (found or {}).get(key)
    return found
