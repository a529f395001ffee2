"""Named values: versions, and the recipients of each value."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from rltraining_trainer.world.shared import SharedValues


@pytest.fixture
def values() -> SharedValues:
    return SharedValues("life")


def test_a_value_is_sent_to_whoever_has_another_version_or_one_of_another_life(values: SharedValues) -> None:
    assert values.share("policy", 3) == 1
    assert values.share("policy", 4) == 2
    assert values.share("other", 1) == 1
    assert values.answer("sampler", ("policy", "", 0)) == ("life", 2, 4)
    assert values.answer("sampler", ("policy", "life", 1)) == ("life", 2, 4)
    assert values.answer("sampler", ("policy", "life", 2)) == ("life", 2, None), "known: nothing is sent"
    assert values.answer("sampler", ("policy", "earlier", 2)) == ("life", 2, 4)


def test_what_nobody_has_shared_yet_has_version_0(values: SharedValues) -> None:
    assert values.answer("sampler", ("policy", "", 0)) == ("life", 0, None)


def test_what_was_shared_does_not_change_any_more(values: SharedValues) -> None:
    weights, more = torch.zeros(3, requires_grad=True), [1]
    values.share("policy", {"weights": weights, "more": (more, None, "x", True, 0.5)})
    with torch.no_grad():
        weights.add_(1)
    more.append(2)
    _, _, shared = values.answer("sampler", ("policy", "", 0))  # type: ignore[misc, union-attr]
    assert shared["weights"].tolist() == [0, 0, 0]
    assert shared["more"] == ([1], None, "x", True, 0.5)


@pytest.mark.parametrize("value", [np.zeros(2), {"a": [np.float64(1)]}, {1, 2}, object()])
def test_what_cannot_be_sent_is_refused_by_name(values: SharedValues, value: object) -> None:
    with pytest.raises(
        TypeError, match=r"a (ndarray|float64|set|object) cannot be sent: use tensors and plain values"
    ):
        values.share("policy", value)  # type: ignore[arg-type]


def test_the_state_of_a_torch_module_can_be_shared(values: SharedValues) -> None:
    values.share("policy", torch.nn.Linear(2, 1).state_dict())
    _, _, shared = values.answer("sampler", ("policy", "", 0))  # type: ignore[misc, union-attr]
    assert type(shared) is dict
    assert shared.keys() == {"weight", "bias"}
