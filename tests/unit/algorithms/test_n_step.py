"""n_step_transitions against an oracle's vectors, and against a loop over single steps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rltraining_trainer.algorithms.n_step import n_step_transitions


@pytest.mark.parametrize(
    ("n", "expected"),
    [(2, [3.0025, 4.80125, 6.650625, 4.05625]), (3, [5.321125, 7.9855625, 6.650625, 4.05625])],
)
def test_targets_are_those_of_rlax(n: int, expected: list[float]) -> None:
    """rlax.n_step_bootstrapped_returns of these rewards and of values of x_1 .. x_4, γ .9."""
    rewards = np.array([[1.0], [2.0], [3.0], [4.0]], np.float32)
    values_after, none = np.array([0.5, 0.25, 0.125, 0.0625]), np.zeros((4, 1), bool)

    found = n_step_transitions(rewards, none, none, n, 0.9)

    after = values_after[np.arange(4) + found.lengths[:, 0] - 1]
    targets = found.returns[:, 0] + found.discounts[:, 0] * after
    assert targets == pytest.approx(expected, rel=1e-6)


@given(
    rows=st.integers(0, 12),
    batch=st.integers(1, 3),
    n=st.integers(1, 5),
    seed=st.integers(0, 2**32 - 1),
    ending=st.sampled_from([0.0, 0.2, 0.6, 1.0]),
)
def test_it_computes_what_a_loop_does(rows: int, batch: int, n: int, seed: int, ending: float) -> None:
    random = np.random.default_rng(seed)
    rewards = random.normal(size=(rows, batch)).astype(np.float32)
    terminated, truncated = random.random((2, rows, batch)) < ending / 2

    found = n_step_transitions(rewards, terminated, truncated, n, 0.9)

    for b in range(batch):
        for t in range(rows):
            total, discount, k = 0.0, 1.0, 0
            while k < n and t + k < rows:
                total += discount * float(rewards[t + k, b])
                discount *= 0.9
                k += 1
                if terminated[t + k - 1, b] or truncated[t + k - 1, b]:
                    break
            assert found.lengths[t, b] == k
            assert found.returns[t, b] == pytest.approx(total, abs=1e-5)
            expected = 0.0 if terminated[t + k - 1, b] else discount
            assert found.discounts[t, b] == pytest.approx(expected, abs=1e-6)


def test_arrays_that_do_not_fit_are_refused() -> None:
    rewards, flags = np.zeros((3, 2), np.float32), np.zeros((3, 2), bool)
    for wrong in (
        (rewards[0], flags[0], flags[0], 1),
        (rewards, flags[:2], flags, 1),
        (rewards, flags, flags[:, :1], 1),
        (rewards, flags, flags, 0),
    ):
        with pytest.raises(ValueError, match=r"n_step_transitions: rewards .* one shape \[R, B\]"):
            n_step_transitions(*wrong, 0.9)
