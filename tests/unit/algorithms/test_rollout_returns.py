"""Returns and advantages against frozen vectors and the sums that define them."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rltraining_trainer.algorithms.returns import generalized_advantages, moments, n_step_returns, normalize
from soak import SOAK
from torch import Tensor

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "returns.json").read_text())

DTYPES = pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)], ids=str
)


def column(numbers: list[float], dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.tensor(numbers, dtype=dtype).unsqueeze(1)


@DTYPES
@pytest.mark.parametrize("case", VECTORS["n_step_bootstrapped_returns"], ids=lambda case: f"n={case['n']}")
def test_frozen_n_step_returns(case: dict, dtype: torch.dtype, tolerance: float) -> None:
    rewards = column(VECTORS["rewards"], dtype)
    values = column([77.0, *case["v_t"]], dtype)  # V(x_0) is not in any return

    found = n_step_returns(rewards, torch.full_like(rewards, VECTORS["gamma"]), values, case["n"])

    assert found.dtype == dtype
    assert found.squeeze(1).tolist() == pytest.approx(case["result"], abs=tolerance)


@DTYPES
def test_frozen_advantages(dtype: torch.dtype, tolerance: float) -> None:
    case, rewards = VECTORS["truncated_gae"], column(VECTORS["rewards"], dtype)
    discounts = torch.full_like(rewards, VECTORS["gamma"])

    found = generalized_advantages(rewards, discounts, column(case["values"], dtype), case["lambda"])

    assert found.dtype == dtype
    assert found.squeeze(1).tolist() == pytest.approx(case["result"], abs=tolerance)


@settings(max_examples=40 * SOAK)
@given(
    length=st.integers(1, 8),
    batch=st.integers(1, 4),
    n=st.integers(1, 10),
    lambda_=st.floats(0, 1),
    seed=st.integers(0, 2**32 - 1),
    ending=st.floats(0, 1),
    validity=st.floats(0, 1),
)
def test_they_are_the_sums_that_define_them(
    length: int, batch: int, n: int, lambda_: float, seed: int, ending: float, validity: float
) -> None:
    random = np.random.default_rng(seed)
    shape = (length, batch)
    rewards, values = random.normal(0, 3, shape), random.normal(0, 3, (length + 1, batch))
    discounts = np.where(random.random(shape) < ending, 0.0, random.random(shape))
    valid = random.random(shape) < validity

    advantages, returns = np.zeros(shape), values[:-1].copy()
    for t, b in zip(*np.nonzero(valid), strict=True):
        going, returns[t, b] = 1.0, 0.0
        for i in range(t, length):
            if not valid[i, b]:
                break
            delta = rewards[i, b] + discounts[i, b] * values[i + 1, b] - values[i, b]
            advantages[t, b] += going * lambda_ ** (i - t) * delta
            going *= discounts[i, b]
        going = 1.0
        for i in range(t, min(t + n, length)):
            if not valid[i, b]:
                break
            returns[t, b] += going * rewards[i, b]
            going *= discounts[i, b]
            last = i + 1
        returns[t, b] += going * values[last, b]

    arguments = [torch.from_numpy(array) for array in (rewards, discounts, values)]
    found = generalized_advantages(*arguments, lambda_, torch.from_numpy(valid))
    np.testing.assert_allclose(found.numpy(), advantages, rtol=1e-9, atol=1e-9)
    found = n_step_returns(*arguments, n, torch.from_numpy(valid))
    np.testing.assert_allclose(found.numpy(), returns, rtol=1e-9, atol=1e-9)


def example(length: int = 6, batch: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(0)
    rewards = torch.randn(length, batch, generator=random, dtype=torch.float64)
    values = torch.randn(length + 1, batch, generator=random, dtype=torch.float64)
    return rewards, torch.full_like(rewards, 0.9), values


Function = Callable[..., Tensor]
both = pytest.mark.parametrize(
    "function",
    [partial(generalized_advantages, lambda_=0.9), partial(n_step_returns, n=4)],
    ids=["advantages", "n-step"],
)


@both
def test_a_row_that_is_no_step_separates_two_episodes_even_if_it_is_nan(function: Function) -> None:
    rewards, discounts, values = example(length=7)
    rewards[3] = discounts[3] = torch.nan
    valid = torch.ones(7, 3, dtype=torch.bool)
    valid[3] = False

    together = function(rewards, discounts, values, valid=valid)

    assert torch.allclose(together[:3], function(rewards[:3], discounts[:3], values[:4]))
    assert torch.allclose(together[4:], function(rewards[4:], discounts[4:], values[4:]))
    own = values[3] if function.func is n_step_returns else torch.zeros(3).double()  # type: ignore[attr-defined]
    assert torch.equal(together[3], own)


@both
def test_results_have_no_gradient(function: Function) -> None:
    assert not function(*(argument.requires_grad_() for argument in example())).requires_grad


@both
@pytest.mark.parametrize(
    ("name", "shape"),
    [("rewards", (5, 3)), ("discounts", (6, 1)), ("values", (6, 3)), ("values", (7, 1)), ("valid", (6, 1))],
)
def test_shapes_that_differ_are_refused_by_name(
    function: Function, name: str, shape: tuple[int, ...]
) -> None:
    arguments = dict(zip(("rewards", "discounts", "values"), example(), strict=True))
    arguments["valid"] = torch.ones(6, 3, dtype=torch.bool)
    arguments[name] = torch.ones(shape).to(arguments[name].dtype)

    with pytest.raises(ValueError, match=rf"{name}.*\[{', '.join(map(str, shape))}\]"):
        function(**arguments)


def test_no_steps_of_reward_are_refused() -> None:
    with pytest.raises(ValueError, match="n must be positive, got 0"):
        n_step_returns(*example(), 0)


def test_parts_are_normalised_as_the_whole() -> None:
    random = torch.Generator().manual_seed(0)
    values, valid = 5 + 3 * torch.randn(6, 8, generator=random), torch.rand(6, 8, generator=random) < 0.7
    values[~valid] = float("nan")
    parts = [(values[:, :3], valid[:, :3]), (values[:, 3:], valid[:, 3:])]

    totals = sum(moments(*part) for part in parts)
    found = torch.cat([normalize(part, totals) for part, _ in parts], 1)[valid]

    known = values[valid]
    assert totals.dtype == torch.float64
    assert totals[0] == len(known)
    expected = (known - known.mean()) / (known.std() + 1e-8)
    assert torch.allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_what_does_not_vary_is_brought_to_0() -> None:
    for count in (0, 1, 5):
        valid = torch.arange(5) < count
        values = torch.full((5,), 3.0)
        found = normalize(values, moments(values, valid))[valid]
        assert found.tolist() == [0.0] * count
