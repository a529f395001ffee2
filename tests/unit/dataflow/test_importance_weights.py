"""Importance weights equal the weights of a single memory made up of all shards."""

from __future__ import annotations

import pytest
import torch
from rltraining_trainer.dataflow.replay.batch import importance_weights


@pytest.mark.parametrize("exponent", [0.0, 0.4, 1.0])
def test_a_uniform_draw_needs_no_weights(exponent: float) -> None:
    weights = importance_weights(torch.full((8,), 1 / 5000, dtype=torch.float64), 5000, exponent)
    assert torch.allclose(weights, torch.ones(8), rtol=1e-6)
    assert weights.dtype == torch.float32


def test_with_an_exponent_of_1_the_weighted_draw_is_unbiased() -> None:
    probabilities = torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64)
    values = torch.tensor([3.0, -1.0, 10.0], dtype=torch.float64)
    weights = importance_weights(probabilities, 3, 1.0)

    assert float((probabilities * weights * values).sum()) == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("probability", "total", "message"),
    [
        (0.0, 3, "cannot have been drawn"),
        (float("nan"), 3, "cannot have been drawn"),
        (0.5, 0, "weights need items"),
    ],
)
def test_impossible_draws_are_refused(probability: float, total: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        importance_weights(torch.tensor([probability], dtype=torch.float64), total, 0.4)
