"""The API server's words as sentences. The messages are those of a Kubernetes 1.34."""

from __future__ import annotations

from typing import Any

import pytest
from rltraining.sdk.refusals import clean, denied, sentences

CASES = [
    (
        "spec.algorithm",
        'Invalid value: "object": exactly one algorithm is needed: one of a3c, a2c',
        "exactly one algorithm is needed: one of a3c, a2c",
    ),
    (
        "spec",
        'Invalid value: {"stop":{"seconds":1}}: seed is immutable: delete the job and create it anew',
        "seed is immutable: delete the job and create it anew",
    ),
    (
        "spec.sampler.replicas",
        "Invalid value: 0: spec.sampler.replicas in body should be greater than or equal to 1",
        "should be greater than or equal to 1, got 0",
    ),
    (
        "spec.seed",
        'Invalid value: "string": spec.seed in body must be of type integer: "string"',
        "must be of type integer, got string",
    ),
    ("spec.stop", "Required value", "is required"),
    (
        "metadata.name",
        "Required value: name or generateName is required",
        "is required: name or generateName is required",
    ),
    (
        "spec.runPolicy.cleanPodPolicy",
        'Unsupported value: "Some": supported values: "All", "Running", "None"',
        'unsupported value "Some": supported values: "All", "Running", "None"',
    ),
    ("spec.image", "Too long: may not be more than 1024 bytes", "too long: may not be more than 1024 bytes"),
    ("", "something: unforeseen.", "something: unforeseen"),
]


@pytest.mark.parametrize(("field", "message", "said"), CASES)
def test_clean(field: str, message: str, said: str) -> None:
    assert clean(message, field) == said


def test_one_sentence_a_cause() -> None:
    cause = {"field": "spec.sampler.replicas", "message": CASES[2][1]}
    rest = {
        "field": "<nil>",
        "message": "Invalid value: null: some validation rules were not checked because the object was invalid",
    }
    status: dict[str, Any] = {"message": "all of it", "details": {"causes": [cause, cause, rest]}}
    assert sentences(status) == ["spec.sampler.replicas: should be greater than or equal to 1, got 0"]
    assert sentences({"message": "all of it"}) == ["all of it"]
    strict = 'RLTrainingJob in version "v1alpha1" cannot be handled: strict decoding error: unknown field "spec.foo"'
    assert sentences({"message": strict}) == ["spec.foo: is not a known field"]
    assert sentences({}) == ["no reason was given"]


def test_rights() -> None:
    message = (
        'User "ann" cannot list resource "rltrainingjobs" in API group "rltraining.dev" at the cluster scope'
    )
    told = "ann may not list rltrainingjobs in the whole cluster: ask for a Role that allows it"
    assert denied(f"rltrainingjobs.rltraining.dev is forbidden: {message}") == told
    assert denied("exceeded quota: gpus") is None
