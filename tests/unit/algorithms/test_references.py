"""Targets, losses, priorities, RMSProp and schedules agree with rlax, optax and dqn_zoo.

The inputs are random: tests/vectors/make_references.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rltraining_api.algorithms import Optimizer, R2d2, RmsProp
from rltraining_trainer.algorithms.n_step import n_step_transitions
from rltraining_trainer.algorithms.optimizers import make_optimizer
from rltraining_trainer.algorithms.q_learning import (
    double_q_target,
    huber_loss,
    quantile_huber_loss,
    rescale,
    squared_loss,
    unscale,
)
from rltraining_trainer.algorithms.r2d2 import td_errors
from rltraining_trainer.algorithms.returns import generalized_advantages, n_step_returns
from rltraining_trainer.algorithms.schedules import scheduled
from rltraining_trainer.algorithms.sequences import Sequences
from rltraining_trainer.algorithms.vtrace import vtrace
from rltraining_trainer.dataflow.replay import Column, ReplayBuffer
from rltraining_trainer.dataflow.replay.batch import importance_weights
from torch import Tensor

REFERENCES = json.loads((Path(__file__).parents[2] / "vectors" / "references.json").read_text())


def given(name: str, *fields: str) -> list[Tensor]:
    """Inputs ``[T, 1]`` of one environment."""
    return [torch.tensor(REFERENCES[name][field]).unsqueeze(1) for field in fields]


def check(found: Tensor, name: str, field: str) -> None:
    assert found.flatten().tolist() == pytest.approx(REFERENCES[name][field], rel=1e-5, abs=1e-5)


def test_vtrace_is_rlaxs() -> None:
    log_rhos, discounts, rewards, values = given("vtrace", "log_rhos", "discounts", "rewards", "values")
    inputs = (log_rhos, discounts, rewards, values[:-1], values[-1])
    found = vtrace(*inputs, rho_clip=1.2, pg_rho_clip=1.1)
    check(found.targets, "vtrace", "targets")
    check(found.advantages, "vtrace", "advantages")
    check(vtrace(*inputs, rho_clip=1.2, pg_rho_clip=1.1, lambda_=0.9).targets, "vtrace", "decayed")


def test_advantages_and_n_step_returns_are_rlaxs() -> None:
    check(generalized_advantages(*given("gae", "rewards", "discounts", "values"), 0.95), "gae", "advantages")
    check(n_step_returns(*given("n_step", "rewards", "discounts", "values"), 3), "n_step", "returns")


def test_double_q_errors_and_losses_are_rlaxs() -> None:
    made = {name: torch.tensor(values) for name, values in REFERENCES["double_q"].items()}
    target = double_q_target(made["returns"], made["discounts"], made["target"], made["selector"])
    errors = target - made["q"][:, 0]

    check(errors, "double_q", "errors")
    check(huber_loss(errors)[0], "double_q", "huber")
    check(squared_loss(errors)[0], "double_q", "squared")


def test_the_quantile_huber_loss_is_rlaxs() -> None:
    made = {name: torch.tensor(values) for name, values in REFERENCES["quantiles"].items()}
    loss, slope = quantile_huber_loss(made["target"], made["quantiles"])
    assert torch.allclose(loss, made["loss"], rtol=1e-5, atol=1e-6)
    assert torch.allclose(slope, made["slope"], rtol=1e-5, atol=1e-6)


def test_the_rescaling_of_values_is_rlaxs() -> None:
    made = {
        name: torch.tensor(values, dtype=torch.float64) for name, values in REFERENCES["rescaling"].items()
    }
    assert torch.allclose(rescale(made["values"], 1e-3), made["scaled"], rtol=1e-6)
    assert torch.allclose(unscale(made["scaled"], 1e-3), made["values"], rtol=1e-6)


class Table:
    """Values ``[T+1, n]`` of the observations 0 to T, in place of a recurrent network."""

    def __init__(self, values: Tensor) -> None:
        self._values = values

    def unroll(self, observation: Tensor, state: Any, first: Tensor) -> tuple[Tensor, Any]:
        return self._values[observation], state


def test_the_errors_of_r2d2_are_rlaxs() -> None:
    made = {name: torch.tensor(values) for name, values in REFERENCES["rescaled_double_q"].items()}
    steps = len(made["rewards"])
    terminated = made["terminated"].unsqueeze(1).numpy()
    n_step = n_step_transitions(
        made["rewards"].unsqueeze(1).numpy(), terminated, np.zeros_like(terminated), 3, 0.9
    )
    reward, discount, length = (torch.from_numpy(part).T for part in n_step)
    batch = Sequences(
        observation=torch.arange(steps + 1).unsqueeze(0),
        first=torch.zeros(1, steps + 1, dtype=torch.bool),
        action=made["actions"].unsqueeze(0),
        reward=reward,
        discount=discount,
        length=length,
        valid=torch.ones(1, steps, dtype=torch.bool),
        hidden=torch.zeros(1, 0),
        cell=torch.zeros(1, 0),
    )
    _, errors = td_errors(Table(made["q"]), Table(made["target"]), batch, R2d2(burn_in=0))  # type: ignore[arg-type]
    check(errors, "rescaled_double_q", "errors")


def test_transitions_of_n_steps_are_dqn_zoos() -> None:
    rewards, terminated, truncated = (
        np.array(REFERENCES["n_step_transitions"][field])[:, None]
        for field in ("rewards", "terminated", "truncated")
    )
    found = n_step_transitions(rewards.astype(np.float32), terminated, truncated, 3, 0.9)
    check(torch.from_numpy(found.returns), "n_step_transitions", "returns")
    check(torch.from_numpy(found.discounts), "n_step_transitions", "n_step_discounts")


def test_priorities_and_importance_weights_are_dqn_zoos() -> None:
    made = {name: torch.tensor(values) for name, values in REFERENCES["prioritized"].items()}
    count = len(made["priorities"])
    column = {"item": Column((), torch.int64)}
    replay = ReplayBuffer(count, column, kind="Prioritized", priority_exponent=0.6, seed=0)
    replay.add({"item": torch.arange(count)}, torch.ones(count))
    replay.update(torch.arange(count), torch.arange(count), made["priorities"])

    # Draw many times, so that each item is drawn.
    draw = replay.sample(1000)
    probabilities = torch.zeros(count, dtype=torch.float64)
    probabilities[draw.items["item"]] = draw.probabilities
    weights = importance_weights(probabilities, count, 0.4)
    weights /= weights.max()
    _, slope = squared_loss(made["errors"])

    check(probabilities, "prioritized", "probabilities")
    check(weights, "prioritized", "weights")
    check(-slope * weights / count, "prioritized", "slope")


@pytest.mark.parametrize("case", REFERENCES["rmsprop"], ids=lambda case: str(case["settings"]))
def test_rmsprop_with_a_linear_schedule_is_optaxs(case: dict[str, Any]) -> None:
    parameters = torch.tensor(case["parameters"])
    optimizer = make_optimizer(Optimizer(rmsprop=RmsProp(**case["settings"])), len(parameters))
    for step, (gradient, expected) in enumerate(zip(case["gradients"], case["steps"], strict=True)):
        optimizer.step(parameters, torch.tensor(gradient), scheduled(0.01, "Linear", step, 10))
        assert parameters.tolist() == pytest.approx(expected, rel=1e-5, abs=1e-5), step
