"""Returns and advantages against frozen vectors, the sums that define them, and what must hold of them."""

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


@settings(max_examples=60)
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


# One environment, γ .5: x_0 -(reward 1)-> x_1 -(reward 2)-> the end, at an observation of value 30; then a step with reward 4.
TRAJECTORIES = {
    "next step, terminated": {
        "rewards": [1, 2, 99, 4],
        "ended": [False, True, False, False],
        "valid": [True, True, False, True],
        "values": [10, 20, 30, 40, 50],
        "to the end": [2, 2, 30, 29],
        "one step": [11, 2, 30, 29],
        "lambda .5": [-3.5, -18, 0, -11],
    },
    "next step, truncated": {
        "rewards": [1, 2, 99, 4],
        "ended": [False, False, False, False],
        "valid": [True, True, False, True],
        "values": [10, 20, 30, 40, 50],
        "to the end": [9.5, 17, 30, 29],
        "one step": [11, 17, 30, 29],
        "lambda .5": [0.25, -3, 0, -11],
    },
    "same step, terminated": {
        "rewards": [1, 2, 4],
        "ended": [False, True, False],
        "valid": [True, True, True],
        "values": [10, 20, 40, 50],
        "to the end": [2, 2, 29],
        "one step": [11, 2, 29],
        "lambda .5": [-3.5, -18, -11],
    },
    "same step, truncated": {
        "rewards": [1, 2 + 0.5 * 30, 4],
        "ended": [False, True, False],
        "valid": [True, True, True],
        "values": [10, 20, 40, 50],
        "to the end": [9.5, 17, 29],
        "one step": [11, 17, 29],
        "lambda .5": [0.25, -3, -11],
    },
}


@pytest.mark.parametrize("case", TRAJECTORIES.values(), ids=TRAJECTORIES.keys())
def test_a_truncated_episode_goes_on_in_its_last_value_a_terminated_one_does_not(case: dict) -> None:
    rewards, values = column(case["rewards"]), column(case["values"])
    ended, valid = (torch.tensor(case[name]).unsqueeze(1) for name in ("ended", "valid"))
    arguments = (rewards, 0.5 * ~ended, values)

    found = {
        "to the end": n_step_returns(*arguments, 4, valid),
        "one step": n_step_returns(*arguments, 1, valid),
        "lambda .5": generalized_advantages(*arguments, 0.5, valid),
    }

    for name, numbers in found.items():
        assert numbers.squeeze(1).tolist() == pytest.approx(case[name]), name
    to_the_end = generalized_advantages(*arguments, 1.0, valid) + values[:-1]
    assert to_the_end.squeeze(1).tolist() == pytest.approx(case["to the end"])


def example(length: int = 6, batch: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(0)
    rewards = torch.randn(length, batch, generator=random, dtype=torch.float64)
    values = torch.randn(length + 1, batch, generator=random, dtype=torch.float64)
    return rewards, torch.full_like(rewards, 0.9), values


def test_lambda_1_is_the_return_to_the_end_of_the_rollout() -> None:
    rewards, discounts, values = example()
    discounts[2, 1] = 0.0

    returns = generalized_advantages(rewards, discounts, values, 1.0) + values[:-1]

    expected, total = [], values[-1]
    for reward, discount in zip(rewards.flip(0), discounts.flip(0), strict=True):
        total = reward + discount * total
        expected.insert(0, total)
    assert torch.allclose(returns, torch.stack(expected))
    for n in (6, 100):
        assert torch.allclose(n_step_returns(rewards, discounts, values, n), returns)


def test_lambda_0_is_one_step() -> None:
    arguments = example()

    advantages = generalized_advantages(*arguments, 0.0)

    assert torch.allclose(advantages, n_step_returns(*arguments, 1) - arguments[2][:-1])


Function = Callable[..., Tensor]
both = pytest.mark.parametrize(
    "function",
    [partial(generalized_advantages, lambda_=0.9), partial(n_step_returns, n=4)],
    ids=["advantages", "n-step"],
)


@both
def test_permuting_environments_permutes_the_result(function: Function) -> None:
    arguments, order = example(batch=5), torch.tensor([3, 0, 4, 1, 2])

    permuted = function(*(x[:, order] for x in arguments))

    assert torch.equal(permuted, function(*arguments)[:, order])


@both
@pytest.mark.parametrize("rubbish", [0.0, 1e30, float("inf"), float("nan")])
def test_a_row_that_is_no_step_parts_two_episodes(function: Function, rubbish: float) -> None:
    rewards, discounts, values = example(length=7)
    rewards[3], discounts[3] = rubbish, rubbish
    valid = torch.ones(7, 3, dtype=torch.bool)
    valid[3] = False

    together = function(rewards, discounts, values, valid=valid)

    assert torch.allclose(together[:3], function(rewards[:3], discounts[:3], values[:4]))
    assert torch.allclose(together[4:], function(rewards[4:], discounts[4:], values[4:]))
    own = values[3] if function.func is n_step_returns else torch.zeros(3).double()  # type: ignore[attr-defined]
    assert torch.equal(together[3], own)


@both
def test_all_valid_is_the_default(function: Function) -> None:
    arguments = example()
    valid = torch.ones(6, 3, dtype=torch.bool)
    assert torch.equal(function(*arguments, valid=valid), function(*arguments))


@both
@pytest.mark.parametrize("which", range(3))
def test_no_gradient_flows_through(function: Function, which: int) -> None:
    arguments = example()
    arguments[which].requires_grad_()

    assert not function(*arguments).requires_grad


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
    expected = (known - known.mean()) / (known.std(correction=0) + 1e-8)
    assert torch.allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_what_does_not_vary_is_brought_to_0() -> None:
    for count in (0, 1, 5):
        valid = torch.arange(5) < count
        values = torch.full((5,), 3.0)
        found = normalize(values, moments(values, valid))[valid]
        assert found.tolist() == [0.0] * count
