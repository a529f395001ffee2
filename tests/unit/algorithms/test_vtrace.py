"""V-trace against frozen vectors and the sum that defines it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rltraining_trainer.algorithms.vtrace import VTrace, vtrace
from soak import SOAK
from torch import Tensor

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "vtrace.json").read_text())


WRITTEN = {1: 1e-10, 5: 5e-9}
"""B: precision of the written vectors."""


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
    """Computes v_s = V(x_s) + Σ_{t=s}^{T-1} (Π_{i=s}^{t-1} γ_i c_i) δ_t as written in the paper: O(T²)."""
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


@settings(max_examples=40 * SOAK)
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


def test_a_row_that_is_no_step_separates_two_episodes_even_if_it_is_nan() -> None:
    log_rhos, discounts, rewards, values, bootstrap = example(length=7)
    log_rhos[3] = rewards[3] = torch.nan
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


def test_results_have_no_gradient() -> None:
    assert not any(x.requires_grad for x in vtrace(*(argument.requires_grad_() for argument in example())))


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
