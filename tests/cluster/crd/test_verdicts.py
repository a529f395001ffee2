"""The models and the API server give the same verdict on random jobs: at the bounds of each field, beyond them, and around
each CEL rule. Fields and rules are read from the schema, so new ones need no new test."""

from __future__ import annotations

from itertools import tee
from random import Random

import pytest
from random_jobs import SHORTEST, breaches, cases, job, replaced, rules
from rltraining_api.introspect import dotted
from rltraining_api.manifest import parse_job
from verdicts import Json, Server, complaints, of_the_models

SEED = 1
pytestmark = pytest.mark.timeout(600)
FILLED: Json = job(SHORTEST | {"sampler": {}, "seed": 1, "algorithm": {"impala": {"discount": 0.5}}})


def test_random_jobs_have_the_same_verdict_and_are_stored_as_the_models_write_them(server: Server) -> None:
    tried, manifests = tee(cases(Random(SEED)))  # the server judges the first while the next are made
    answers = server.store(manifest for _, manifest in manifests)
    wrong = []
    for (field, manifest), answer in zip(tried, answers, strict=True):
        ours, theirs = of_the_models(manifest), complaints(answer)
        if bool(ours) != bool(theirs):
            wrong.append(f"{field}: rltrain: {ours}, the API server: {theirs}, of {manifest}")
        elif not ours and answer["spec"] != parse_job(manifest).to_dict()["spec"]:
            wrong.append(f"{field}: stored as {answer['spec']}, of {manifest}")
    assert not wrong, "\n".join(wrong)


def test_each_rule_refuses_jobs_that_break_it_with_its_sentence(server: Server) -> None:
    random = Random(SEED)
    wrong = []
    for rule in rules():
        judged = server.judge(breaches(random, rule))
        said = {each.message.removeprefix('Invalid value: "object": ') for found in judged for each in found}
        if not all(judged) or rule.message not in said:
            wrong.append(f"{dotted(rule.path)}: {rule.message}: {judged}")
    assert not wrong, "\n".join(wrong)


def test_an_empty_field_gets_its_default_from_the_server_and_an_error_from_rltrain(server: Server) -> None:
    """Checks the one difference: the API server drops a null, and rltrain reports it.

    rltrain reports a null because a user who wrote `sampler:` with nothing below it probably made a
    mistake.
    """
    fields = [("spec", "sampler"), ("spec", "seed"), ("spec", "algorithm", "impala", "discount")]
    manifests = [replaced(FILLED, path, None) for path in fields]
    for path, manifest, found in zip(fields, manifests, server.judge(manifests), strict=True):
        assert not found, path
        assert [each.field for each in of_the_models(manifest)] == [dotted(path)]
