"""n_step_transitions: an oracle's vectors, tables of ends, and a loop that does the same one step at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rltraining_trainer.algorithms.n_step import n_step_transitions

REWARDS = [1.0, 2.0, 3.0, 4.0]


def column(values: list, dtype: type = bool) -> np.ndarray:
    return np.array(values, dtype)[:, None]


@pytest.mark.parametrize(
    ("n", "expected"),
    [(2, [3.0025, 4.80125, 6.650625, 4.05625]), (3, [5.321125, 7.9855625, 6.650625, 4.05625])],
)
def test_targets_are_those_of_rlax(n: int, expected: list[float]) -> None:
    """rlax.n_step_bootstrapped_returns of these rewards and of values of x_1 .. x_4, γ .9."""
    values_after = np.array([0.5, 0.25, 0.125, 0.0625])
    none = column([False] * 4)

    found = n_step_transitions(column(REWARDS, np.float32), none, none, n, 0.9)

    after = values_after[np.arange(4) + found.lengths[:, 0] - 1]
    targets = found.returns[:, 0] + found.discounts[:, 0] * after
    assert targets == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("n", [1, 2, 3, 9])
@pytest.mark.parametrize(
    ("terminated", "truncated", "goes_on"),
    [
        ([], [], [True] * 4),
        ([1], [], [False, False, True, True]),
        ([], [1], [True] * 4),
        ([1], [1], [False, False, True, True]),
        ([3], [0], [True, False, False, False]),
        ([0, 1, 2, 3], [], [False] * 4),
        ([], [0, 1, 2, 3], [True] * 4),
    ],
)
def test_a_value_follows_unless_the_episode_terminated(
    n: int, terminated: list[int], truncated: list[int], goes_on: list[bool]
) -> None:
    """No window reaches beyond an end, of whatever kind; what follows the last of its k steps counts γ^k, or nothing."""
    terminates, truncates = (column([t in ends for t in range(4)]) for ends in (terminated, truncated))
    ends = [t in terminated + truncated or t == 3 for t in range(4)]

    found = n_step_transitions(column(REWARDS, np.float32), terminates, truncates, n, 0.5)

    for t in range(4):
        k = min(n, next(end for end in range(t, 4) if ends[end]) - t + 1)
        reached = t + k - 1 in terminated
        assert found.lengths[t, 0] == k
        assert found.returns[t, 0] == sum(0.5**i * REWARDS[t + i] for i in range(k))
        assert found.discounts[t, 0] == (0.0 if reached else 0.5**k)
        if n == 9:
            assert (found.discounts[t, 0] > 0) == goes_on[t]


@given(
    rows=st.integers(0, 12),
    batch=st.integers(1, 3),
    n=st.integers(1, 5),
    seed=st.integers(0, 2**32 - 1),
    ending=st.sampled_from([0.0, 0.2, 0.6, 1.0]),
)
def test_it_is_what_a_loop_says(rows: int, batch: int, n: int, seed: int, ending: float) -> None:
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


def test_what_does_not_fit_together_is_refused() -> None:
    rewards, flags = np.zeros((3, 2), np.float32), np.zeros((3, 2), bool)
    for wrong in (
        (rewards[0], flags[0], flags[0], 1),
        (rewards, flags[:2], flags, 1),
        (rewards, flags, flags[:, :1], 1),
        (rewards, flags, flags, 0),
    ):
        with pytest.raises(ValueError, match=r"n_step_transitions: rewards .* one shape \[R, B\]"):
            n_step_transitions(*wrong, 0.9)
