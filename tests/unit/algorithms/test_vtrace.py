"""V-trace against frozen vectors, the sum that defines it, and what must hold of it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rltraining_trainer.algorithms.vtrace import VTrace, vtrace
from torch import Tensor

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "vtrace.json").read_text())


WRITTEN = {1: 1e-10, 5: 5e-9}
"""B: how exactly the vectors are written."""


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: f"B={case['B']}")
def test_frozen_vectors(case: dict, dtype: torch.dtype) -> None:
    length, batch = 5, case["B"]
    tolerance = 1e-5 if dtype == torch.float32 else WRITTEN[batch]
    steps = torch.arange(length * batch, dtype=dtype).reshape(length, batch)
    environments = torch.arange(batch, dtype=dtype)

    found = vtrace(
        5 * (steps / (batch * length) - 0.5),
        (0.9 / (environments + 1)).expand(length, batch),
        steps,
        steps / batch,
        environments + 1,
        rho_clip=3.7,
        pg_rho_clip=2.2,
    )

    column = case["column"]
    for name, values in (("vs", found.targets), ("pg_advantages", found.advantages)):
        assert values.dtype == dtype
        relative = tolerance if dtype == torch.float32 else 0.0
        assert values[:, column].tolist() == pytest.approx(case[name], rel=relative, abs=tolerance), name


def definition(
    log_rhos: np.ndarray,
    discounts: np.ndarray,
    rewards: np.ndarray,
    values: np.ndarray,
    bootstrap: np.ndarray,
    *,
    rho_clip: float,
    pg_rho_clip: float,
    c_clip: float,
    lambda_: float,
    valid: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """v_s = V(x_s) + Σ_{t=s}^{T-1} (Π_{i=s}^{t-1} γ_i c_i) δ_t, written down as the paper does: O(T²)."""
    length, batch = log_rhos.shape
    ratios = np.where(valid, np.exp(log_rhos), 0.0)
    rhos, cs = np.minimum(ratios, rho_clip), lambda_ * np.minimum(ratios, c_clip)
    v = np.concatenate((values, bootstrap[None]))
    targets = v.copy()
    for b in range(batch):
        for s in range(length):
            for t in range(s, length):
                product = np.prod([discounts[i, b] * cs[i, b] for i in range(s, t)])
                delta = rhos[t, b] * (rewards[t, b] + discounts[t, b] * v[t + 1, b] - v[t, b])
                targets[s, b] += product * delta
    advantages = np.minimum(ratios, pg_rho_clip) * (rewards + discounts * targets[1:] - values)
    return targets[:-1], advantages


@settings(max_examples=60)
@given(
    length=st.integers(1, 8),
    batch=st.integers(1, 4),
    seed=st.integers(0, 2**32 - 1),
    rho_clip=st.floats(0.1, 5),
    pg_rho_clip=st.floats(0.1, 5),
    c_clip=st.floats(0.1, 5),
    lambda_=st.floats(0, 1),
    ending=st.floats(0, 1),
    validity=st.floats(0, 1),
)
def test_it_is_the_sum_that_defines_it(
    length: int,
    batch: int,
    seed: int,
    rho_clip: float,
    pg_rho_clip: float,
    c_clip: float,
    lambda_: float,
    ending: float,
    validity: float,
) -> None:
    random = np.random.default_rng(seed)
    shape = (length, batch)
    arguments = (
        random.normal(0, 1.5, shape),
        np.where(random.random(shape) < ending, 0.0, random.random(shape)),
        random.normal(0, 3, shape),
        random.normal(0, 3, shape),
        random.normal(0, 3, batch),
    )
    clips = {"rho_clip": rho_clip, "pg_rho_clip": pg_rho_clip, "c_clip": c_clip, "lambda_": lambda_}
    valid = random.random(shape) < validity

    found = vtrace(*map(torch.from_numpy, arguments), **clips, valid=torch.from_numpy(valid))
    targets, advantages = definition(*arguments, **clips, valid=valid)

    np.testing.assert_allclose(found.targets.numpy(), targets, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.advantages.numpy(), advantages, rtol=1e-9, atol=1e-9)


def example(length: int = 6, batch: int = 3, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    shape = (length, batch)
    return normal(*shape), torch.full(shape, 0.9).double(), normal(*shape), normal(*shape), normal(batch)


def same(found: VTrace, expected: VTrace) -> bool:
    return all(torch.allclose(a, b) for a, b in zip(found, expected, strict=True))


def test_on_policy_it_is_the_bootstrapped_return() -> None:
    log_rhos, discounts, rewards, values, bootstrap = example()

    found = vtrace(torch.zeros_like(log_rhos), discounts, rewards, values, bootstrap)

    expected, total = [], bootstrap
    for reward, discount in zip(rewards.flip(0), discounts.flip(0), strict=True):
        total = reward + discount * total
        expected.insert(0, total)
    assert torch.allclose(found.targets, torch.stack(expected))
    assert torch.allclose(found.advantages, torch.stack(expected) - values)


def test_lambda_0_is_one_step() -> None:
    log_rhos, discounts, rewards, values, bootstrap = example()

    found = vtrace(torch.zeros_like(log_rhos), discounts, rewards, values, bootstrap, lambda_=0.0)

    assert torch.allclose(found.targets, rewards + discounts * torch.cat((values[1:], bootstrap[None])))


def test_a_discount_of_0_cuts() -> None:
    log_rhos, discounts, rewards, values, bootstrap = example()
    discounts[2] = 0.0
    before = vtrace(log_rhos, discounts, rewards, values, bootstrap)

    other = [x.clone() for x in (log_rhos, discounts, rewards, values)]
    for tensor in other:
        tensor[3:] = 77.0
    after = vtrace(*other, bootstrap + 5)

    assert all(torch.equal(a[:3], b[:3]) for a, b in zip(before, after, strict=True)), (
        "what comes after does not reach it"
    )


def test_permuting_environments_permutes_the_result() -> None:
    arguments = example(batch=5)
    order = torch.tensor([3, 0, 4, 1, 2])

    straight = vtrace(*arguments, c_clip=0.7)
    permuted = vtrace(*(x[..., order] for x in arguments), c_clip=0.7)

    assert same(permuted, VTrace(*(x[:, order] for x in straight)))


@pytest.mark.parametrize("rubbish", [0.0, 1e30, float("inf"), float("nan")])
def test_a_row_that_is_no_step_parts_two_episodes(rubbish: float) -> None:
    log_rhos, discounts, rewards, values, bootstrap = example(length=7)
    log_rhos[3], rewards[3] = rubbish, rubbish
    valid = torch.ones(7, 3, dtype=torch.bool)
    valid[3] = False

    together = vtrace(log_rhos, discounts, rewards, values, bootstrap, valid=valid)
    steps = (log_rhos, discounts, rewards, values)
    early = vtrace(*(x[:3] for x in steps), values[3])
    late = vtrace(*(x[4:] for x in steps), bootstrap)

    assert same(VTrace(together.targets[:3], together.advantages[:3]), early)
    assert same(VTrace(together.targets[4:], together.advantages[4:]), late)
    assert torch.equal(together.targets[3], values[3]), "its target is its own value"
    assert torch.equal(together.advantages[3], torch.zeros(3).double())


def test_enormous_ratios_are_clipped_not_infinite() -> None:
    log_rhos, discounts, rewards, values, bootstrap = example()

    found = vtrace(log_rhos.fill_(1e4), discounts, rewards, values, bootstrap)

    assert same(found, vtrace(torch.zeros_like(log_rhos), discounts, rewards, values, bootstrap))


@pytest.mark.parametrize("which", range(5))
def test_no_gradient_flows_through(which: int) -> None:
    arguments = example()
    arguments[which].requires_grad_()

    assert not any(x.requires_grad for x in vtrace(*arguments))


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("log_rhos", (5, 3)),
        ("discounts", (6, 1)),
        ("rewards", (6, 3, 1)),
        ("values", (7, 3)),
        ("bootstrap_value", (1,)),
        ("bootstrap_value", (3, 1)),
        ("valid", (6, 1)),
    ],
)
def test_shapes_that_differ_are_refused_by_name(name: str, shape: tuple[int, ...]) -> None:
    names = ("log_rhos", "discounts", "rewards", "values", "bootstrap_value")
    arguments = dict(zip(names, example(), strict=True)) | {"valid": torch.ones(6, 3, dtype=torch.bool)}
    arguments[name] = torch.ones(shape).to(arguments[name].dtype)

    with pytest.raises(ValueError, match=rf"vtrace: .*{name}.*\[{', '.join(map(str, shape))}\]"):
        vtrace(**arguments)
