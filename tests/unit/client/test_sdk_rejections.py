"""Translates the API server's error messages to sentences. The messages are from Kubernetes 1.34."""

from __future__ import annotations

from typing import Any

import pytest
from rltraining.sdk.rejections import clean, denied, sentences

REPLICAS = "Invalid value: 0: spec.sampler.replicas in body should be greater than or equal to 1"
CASES = [
    ("spec.a", 'Invalid value: "object": exactly one is needed: a, b', "exactly one is needed: a, b"),
    ("spec", 'Invalid value: {"stop":{"seconds":1}}: seed is immutable: delete', "seed is immutable: delete"),
    ("spec.sampler.replicas", REPLICAS, "should be greater than or equal to 1, got 0"),
    (
        "spec.seed",
        'Invalid value: "string": spec.seed in body must be of type integer: "string"',
        "must be of type integer, got string",
    ),
    ("spec.stop", "Required value", "is required"),
    ("metadata.name", "Required value: name is required", "is required: name is required"),
    (
        "spec.a",
        'Unsupported value: "S": supported values: "A"',
        'unsupported value "S": supported values: "A"',
    ),
    ("spec.image", "Too long: may not be more than 1024 bytes", "too long: may not be more than 1024 bytes"),
    ("", "something: unforeseen.", "something: unforeseen"),
]


@pytest.mark.parametrize(("field", "message", "said"), CASES)
def test_clean(field: str, message: str, said: str) -> None:
    assert clean(message, field) == said


def test_one_sentence_a_cause() -> None:
    cause = {"field": "spec.sampler.replicas", "message": REPLICAS}
    unchecked = "Invalid value: null: some validation rules were not checked because the object was invalid"
    rest = {"field": "<nil>", "message": unchecked}
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
